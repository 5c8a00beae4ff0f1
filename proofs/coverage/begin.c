// SPDX-License-Identifier: GPL-2.0
#define MARK begin
#include "mark.h"
