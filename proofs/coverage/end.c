// SPDX-License-Identifier: GPL-2.0
#define MARK end
#include "mark.h"
