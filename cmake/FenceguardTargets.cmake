# What every target of the project shares: warnings (never exported) and the two shapes of a library.

add_library(fenceguard_warnings INTERFACE)
target_compile_options(fenceguard_warnings INTERFACE -Wall -Wextra -Wpedantic -Wshadow -Wnon-virtual-dtor
                       -Woverloaded-virtual -Wconversion -Wno-sign-conversion)

# What an installation consists of: the files to be built before it, and the components of the package.
add_custom_target(fenceguard_installed)
set_property(GLOBAL PROPERTY FENCEGUARD_COMPONENTS "")

# fenceguard_precompile(NAME HEADERS …): headers of others that are compiled once for all targets that say
# fenceguard_use_precompiled(TARGET NAME). It is so where sources share translation units; where each is compiled by
# itself, it is seen to include what it needs. Both must agree on POSITION_INDEPENDENT_CODE.
function(fenceguard_precompile name)
  if(NOT CMAKE_UNITY_BUILD)
    return()
  endif()
  cmake_parse_arguments(ARG "" "" "HEADERS" ${ARGN})
  set(source "${CMAKE_CURRENT_BINARY_DIR}/${name}_precompiled.cpp")
  file(CONFIGURE OUTPUT "${source}" CONTENT "// The precompiled header is all there is to this target.\n")
  add_library(${name}_precompiled STATIC EXCLUDE_FROM_ALL "${source}")
  target_compile_features(${name}_precompiled PUBLIC cxx_std_20)
  target_link_libraries(${name}_precompiled PRIVATE fmt::fmt fenceguard_warnings)
  target_precompile_headers(${name}_precompiled PRIVATE ${ARG_HEADERS})
endfunction()

function(fenceguard_use_precompiled target name)
  if(TARGET ${name}_precompiled)
    target_precompile_headers(${target} REUSE_FROM ${name}_precompiled)
  endif()
endfunction()

# fenceguard_library(NAME [UMBRELLA HEADER] HEADERS … SOURCES …): a library that users link as fenceguard::NAME, and
# find as the component NAME. UMBRELLA: include/fenceguard/HEADER, by which they include it as <fenceguard/HEADER>. What
# else it needs is in fenceguard-config.cmake.in.
function(fenceguard_library name)
  cmake_parse_arguments(ARG "" "UMBRELLA" "HEADERS;SOURCES" ${ARGN})
  set(target fenceguard_${name})
  add_library(${target} STATIC ${ARG_SOURCES})
  add_library(fenceguard::${name} ALIAS ${target})
  set_target_properties(${target} PROPERTIES EXPORT_NAME ${name} POSITION_INDEPENDENT_CODE ON)
  target_compile_features(${target} PUBLIC cxx_std_20)
  fenceguard_use_precompiled(${target} library)
  target_sources(${target} PUBLIC FILE_SET HEADERS BASE_DIRS "${PROJECT_SOURCE_DIR}" FILES ${ARG_HEADERS})
  target_link_libraries(${target} PRIVATE $<BUILD_INTERFACE:fenceguard_warnings>)
  set(umbrella)
  if(ARG_UMBRELLA)
    target_sources(${target} PUBLIC FILE_SET umbrella TYPE HEADERS BASE_DIRS "${PROJECT_SOURCE_DIR}/include"
                   FILES "${PROJECT_SOURCE_DIR}/include/fenceguard/${ARG_UMBRELLA}")
    set(umbrella FILE_SET umbrella DESTINATION "${CMAKE_INSTALL_INCLUDEDIR}")
  endif()
  install(TARGETS ${target} EXPORT fenceguard-${name} ARCHIVE DESTINATION "${CMAKE_INSTALL_LIBDIR}"
          FILE_SET HEADERS DESTINATION "${CMAKE_INSTALL_INCLUDEDIR}/fenceguard" ${umbrella})
  install(EXPORT fenceguard-${name} NAMESPACE fenceguard:: FILE fenceguard-${name}.cmake
          DESTINATION "${CMAKE_INSTALL_LIBDIR}/cmake/fenceguard")
  set_property(GLOBAL APPEND PROPERTY FENCEGUARD_COMPONENTS ${name})
  fenceguard_installs(${target})
endfunction()

# fenceguard_installs(TARGET): it is built with 'fenceguard_installed', and must be there before anything is installed.
function(fenceguard_installs target)
  add_dependencies(fenceguard_installed ${target})
  set_property(TARGET fenceguard_installed APPEND PROPERTY FENCEGUARD_FILES "$<TARGET_FILE:${target}>")
endfunction()

# fenceguard_internal_library(NAME SOURCES …): a library of the binary's own, not installed.
function(fenceguard_internal_library name)
  cmake_parse_arguments(ARG "" "" "SOURCES" ${ARGN})
  add_library(fenceguard_${name} STATIC ${ARG_SOURCES})
  target_compile_features(fenceguard_${name} PUBLIC cxx_std_20)
  target_include_directories(fenceguard_${name} PUBLIC "${PROJECT_SOURCE_DIR}")
  target_link_libraries(fenceguard_${name} PRIVATE fenceguard_warnings)
  fenceguard_use_precompiled(fenceguard_${name} server)
endfunction()

# fenceguard_link_products(TARGET): links every adapter of this build, and defines FENCEGUARD_PRODUCT for each.
function(fenceguard_link_products target)
  foreach(product SQLITE POSTGRES MARIADB REDIS ZOOKEEPER ETCD)
    if(FENCEGUARD_${product})
      string(TOLOWER ${product} name)
      target_link_libraries(${target} PRIVATE fenceguard::${name})
      target_compile_definitions(${target} PRIVATE FENCEGUARD_${product})
    endif()
  endforeach()
endfunction()

# fenceguard_embed_text(TARGET NAMESPACE SYMBOL FILE): compiles a text file into TARGET as
# `extern const std::string_view NAMESPACE::SYMBOL`, byte for byte.
function(fenceguard_embed_text target namespace symbol file)
  get_filename_component(path "${file}" ABSOLUTE)
  file(READ "${path}" content)
  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS "${path}")
  set(output "${CMAKE_CURRENT_BINARY_DIR}/embedded/${symbol}.cpp")
  file(CONFIGURE OUTPUT "${output}" @ONLY CONTENT [=[
#include <string_view>
namespace @namespace@ {
extern const std::string_view @symbol@;
const std::string_view @symbol@ = R"embedded(@content@)embedded";
}  // namespace @namespace@
]=])
  target_sources(${target} PRIVATE "${output}")
endfunction()

# fenceguard_is_cold(TARGET…): what waits for people and servers, and not for the processor. A preset may say by
# FENCEGUARD_COLD_FLAGS that it is optimised less, because it is compiled in less time.
function(fenceguard_is_cold)
  foreach(target IN LISTS ARGN)
    target_compile_options(${target} PRIVATE ${FENCEGUARD_COLD_FLAGS})
  endforeach()
endfunction()

# fenceguard_compile_apart(FILE…): each keeps a translation unit of its own where the others of its target share one,
# as they do in most presets (CMakePresets.json): it has a name of its own that another of them has, too.
function(fenceguard_compile_apart)
  set_source_files_properties(${ARGN} PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)
endfunction()
