# SPDX-License-Identifier: GPL-2.0
#
# What can be done here, each in one command; `make` lists it. All of it runs
# in the build root (scripts/in-root), which the first command makes, so that
# the host needs nothing but git and make. Kbuild reads Kbuild, not this file.

# Kernel tree to build the modules for; the stock kernel's when empty.
KDIR ?=
# What `make run` copies; through the environment, whatever is in the name.
FILE ?=
export FILE
# The source of a kernel that gets the driver.
TREE ?=
# Which tests: layers or layer/name, all when empty (scripts/test --help).
LAYER ?=

MODULE_OUT := $(CURDIR)/build/module

.DEFAULT_GOAL := help
.PHONY: help run test test-all nightly check coverage bench modules modules_install packages image in-tree series docs clean distclean

help: ## show these lines
	@echo 'qpair: queue pairs in Rust, from the device to the process'
	@echo
	@sed -nE 's/^([a-z_-]+):.*## (.*)/\1|\2/p' $(lastword $(MAKEFILE_LIST)) | \
		while IFS='|' read -r name text; do printf '  make %-16s %s\n' "$$name" "$$text"; done
	@echo
	@echo '  scripts/guest -- CMD  run a command in a guest with the device (scripts/guest --help)'

run: ## boot a guest and copy a file through queue pairs [FILE=PATH]
	@scripts/run "$$FILE"

test: ## run the tests that need only the stock kernel [LAYER='host mutants device stock iommu verbs wire figures'; on request: kunit tree 7.3 debug fuzz, which need a kernel of their own, and packages]
	@scripts/test $(LAYER)

test-all: ## all tests, in each of their guests and on kernels built for them, all rounds of races: for releases
	@scripts/test --all $(LAYER)

nightly: ## what takes hours: fuzzers, each way to end a thousand times, traffic under loss, wrong variants [STEP='endings-kill soak']
	@scripts/py nightly $(STEP)

check: ## formats, lints, documents: all that is judged without running
	@scripts/check

coverage: ## which lines the tests run, of the module and the provider in guests and of the crates, by folder
	@scripts/coverage

bench: ## measure, into build/bench: figures, a table beside their goals, plots
	@scripts/bench

kdir_is_built = test -z "$(KDIR)" || scripts/in-root scripts/kdir "$(KDIR)"

modules: ## build the modules, in build/module [KDIR=/path/to/kernel/tree]
	@$(kdir_is_built)
	@mkdir -p $(MODULE_OUT)
	@scripts/in-root $(MAKE) --no-print-directory -C "$(or $(KDIR),$$(scripts/kernel stock --tree))" \
		M=$(CURDIR) MO=$(MODULE_OUT) modules

modules_install: ## install them in /lib/modules [KDIR=...] [INSTALL_MOD_PATH=...]
	@$(kdir_is_built)
	@test -f $(MODULE_OUT)/qpair-stream.ko || { echo 'qpair: error: no modules; remedy: make modules' >&2; exit 1; }
	@release=$$(cat "$(or $(KDIR),$$(scripts/kernel stock --tree))/include/config/kernel.release") && \
		built=$$(tr '\0' '\n' <$(MODULE_OUT)/qpair.ko | sed -n 's/^vermagic=\([^ ]*\).*/\1/p') && \
		{ test "$$built" = "$$release" || { echo "qpair: error: build/module is for $$built, not for $$release; remedy: make modules$(if $(KDIR), KDIR=$(KDIR))" >&2; exit 1; }; } && \
		install -D -m 644 -t "$(INSTALL_MOD_PATH)/lib/modules/$$release/updates" $(MODULE_OUT)/*.ko && \
		{ ! command -v depmod >/dev/null || depmod $(if $(INSTALL_MOD_PATH),-b "$(INSTALL_MOD_PATH)") "$$release"; }

packages: ## make Debian packages of driver, provider, tools and device, in build/packages
	@scripts/py debs

image: packages ## make a disk of Debian 13 that has them, in build/image: the README boots it
	@scripts/image

in-tree: ## put the driver into the source of a kernel [TREE=/path/to/linux-7.3]
	@scripts/py intree -- "$(TREE)"

series: ## write it as patches, in build/series [TREE=/path/to/linux-7.3]
	@scripts/py series $(if $(TREE),-- "$(TREE)")

docs: ## render Documentation/ and the crates' documents, into build/docs
	@scripts/check docs rustdoc
	@echo "build/docs/index.html, build/docs/rustdoc/"

# A misspelt target; but make also asks for its own makefiles here.
.DEFAULT:
	@echo "qpair: error: no target $@; remedy: make help lists them" >&2; exit 2

clean: ## remove what was built here
	@rm -rf build target

distclean: clean ## remove the cache as well: root, kernels, QEMU, also what other checkouts built of it
	@scripts/cache remove
