# fenceguard_fuzz(NAME SOURCES … PURE … TARGETS … [LIBRARIES …] CORPUS FILE): a fuzz target, whose SOURCES have
# LLVMFuzzerTestOneInput. Every test run goes over the corpus (NAME_fuzz_replay, the test NAME_fuzz_corpus). With
# FENCEGUARD_FUZZ there is NAME_fuzz too, and fenceguard_fuzz_targets for all of them, which looks for more: what is PURE
# (patterns of files) once more, compiled by clang and watched by libFuzzer; the rest of the TARGETS is as g++ built it,
# because clang 14 does not compile the ranges of g++ 12's library. LIBRARIES: what else is linked.
function(fenceguard_fuzz name)
  cmake_parse_arguments(ARG "" "CORPUS" "SOURCES;PURE;TARGETS;LIBRARIES" ${ARGN})
  add_executable(${name}_fuzz_replay "${PROJECT_SOURCE_DIR}/tests/proof/fuzz/replay.cpp" ${ARG_SOURCES})
  set_target_properties(${name}_fuzz_replay PROPERTIES RUNTIME_OUTPUT_DIRECTORY "${PROJECT_BINARY_DIR}/tests")
  target_include_directories(${name}_fuzz_replay PRIVATE "${PROJECT_SOURCE_DIR}")
  target_link_libraries(${name}_fuzz_replay PRIVATE ${ARG_TARGETS} ${ARG_LIBRARIES} fmt::fmt fenceguard_warnings)
  target_compile_options(${name}_fuzz_replay PRIVATE -Wno-mismatched-new-delete)
  add_test(NAME ${name}_fuzz_corpus COMMAND ${name}_fuzz_replay "${CMAKE_CURRENT_SOURCE_DIR}/${ARG_CORPUS}")
  set_tests_properties(${name}_fuzz_corpus PROPERTIES LABELS unit)
  add_dependencies(fenceguard_unit_tests ${name}_fuzz_replay)
  if(NOT FENCEGUARD_FUZZ)
    return()
  endif()
  find_program(FENCEGUARD_CLANG clang++ REQUIRED)
  list(TRANSFORM ARG_PURE PREPEND "${PROJECT_SOURCE_DIR}/")
  file(GLOB pure CONFIGURE_DEPENDS ${ARG_PURE})
  set(archives)
  foreach(target ${ARG_TARGETS})
    list(APPEND archives $<TARGET_FILE:${target}>)
  endforeach()
  set(libraries)
  foreach(library ${ARG_LIBRARIES})
    if(library MATCHES "::")
      list(APPEND libraries $<TARGET_LINKER_FILE:${library}>)
    else()
      list(APPEND libraries ${library})
    endif()
  endforeach()
  set(output "${PROJECT_BINARY_DIR}/tests/${name}_fuzz")
  add_custom_command(OUTPUT "${output}"
    COMMAND "${FENCEGUARD_CLANG}" -std=c++20 -O1 -g1 "-I${PROJECT_SOURCE_DIR}" -fsanitize=fuzzer,address,undefined
      -fno-sanitize-recover=undefined -o "${output}" ${ARG_SOURCES} ${pure}
      -Wl,--allow-multiple-definition -Wl,--start-group ${archives} -Wl,--end-group ${libraries} -lfmt -lssl -lcrypto
    DEPENDS ${ARG_SOURCES} ${pure} ${ARG_TARGETS}
    WORKING_DIRECTORY "${CMAKE_CURRENT_SOURCE_DIR}" VERBATIM)
  add_custom_target(${name}_fuzz DEPENDS "${output}")
  if(NOT TARGET fenceguard_fuzz_targets)
    add_custom_target(fenceguard_fuzz_targets)
  endif()
  add_dependencies(fenceguard_fuzz_targets ${name}_fuzz)
endfunction()
