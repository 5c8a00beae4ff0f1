// SPDX-License-Identifier: GPL-2.0
/*
 * Streaming DMA mappings, whose functions are inline and so cannot be called
 * from Rust.
 */
#include <linux/dma-mapping.h>
#include <linux/types.h>

dma_addr_t qpair_dma_map_single(struct device *dev, void *memory, size_t bytes,
				enum dma_data_direction direction);
void qpair_dma_unmap_single(struct device *dev, dma_addr_t address, size_t bytes,
			    enum dma_data_direction direction);
void qpair_dma_sync_single_for_cpu(struct device *dev, dma_addr_t address, size_t bytes,
				   enum dma_data_direction direction);
void qpair_dma_sync_single_for_device(struct device *dev, dma_addr_t address, size_t bytes,
				      enum dma_data_direction direction);

dma_addr_t qpair_dma_map_single(struct device *dev, void *memory, size_t bytes,
				enum dma_data_direction direction)
{
	return dma_map_single(dev, memory, bytes, direction);
}

void qpair_dma_unmap_single(struct device *dev, dma_addr_t address, size_t bytes,
			    enum dma_data_direction direction)
{
	dma_unmap_single(dev, address, bytes, direction);
}

void qpair_dma_sync_single_for_cpu(struct device *dev, dma_addr_t address, size_t bytes,
				   enum dma_data_direction direction)
{
	dma_sync_single_for_cpu(dev, address, bytes, direction);
}

void qpair_dma_sync_single_for_device(struct device *dev, dma_addr_t address, size_t bytes,
				      enum dma_data_direction direction)
{
	dma_sync_single_for_device(dev, address, bytes, direction);
}
