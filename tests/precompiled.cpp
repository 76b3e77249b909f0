#include "tests/precompiled.hpp"
