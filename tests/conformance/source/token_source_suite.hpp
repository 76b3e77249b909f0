#pragma once

// What every token source must do, whatever it rests on. An adapter runs the suite by naming its spaces:
//
//   INSTANTIATE_TEST_SUITE_P(Sqlite, TokenSourceSuite, testing::Values(SourceKind{"own_file",
//   make_own_file}),
//                            source_kind_name);
//
// A space is one fresh namespace; each handle that it opens stands for another process. Include it in one
// source of a test program.

#include "tests/conformance/source/token_source_crowds.hpp"
#include "tests/conformance/source/token_source_fixture.hpp"
#include "tests/conformance/source/token_source_numbers.hpp"
#include "tests/conformance/source/token_source_tenures.hpp"
#include "tests/conformance/source/token_source_terms.hpp"
