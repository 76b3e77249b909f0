# Installs BUILD into an empty prefix, and builds and runs projects that know only what was installed: CONSUMER takes
# everything, REDIS_ONLY one component in a place that has nothing for the others. Then what must fail, in words.

function(run what)
  execute_process(COMMAND ${ARGN} RESULT_VARIABLE status OUTPUT_VARIABLE output ERROR_VARIABLE output)
  if(NOT status EQUAL 0)
    message(FATAL_ERROR "${what} failed (${status}):\n${output}")
  endif()
  message(STATUS "${what}: done")
endfunction()

# run_refused(WHAT SENTENCE COMMAND …): it fails, and says so in these words.
function(run_refused what sentence)
  execute_process(COMMAND ${ARGN} RESULT_VARIABLE status OUTPUT_VARIABLE output ERROR_VARIABLE output)
  if(status EQUAL 0)
    message(FATAL_ERROR "${what}: this should have failed:\n${output}")
  endif()
  string(REGEX REPLACE "[ \n]+" " " words "${output}")
  string(FIND "${words}" "${sentence}" place)
  if(place EQUAL -1)
    message(FATAL_ERROR "${what} failed, but not with '${sentence}':\n${output}")
  endif()
  message(STATUS "${what}: refused as it should be")
endfunction()

file(REMOVE_RECURSE "${FOLDER}")
set(prefix "${FOLDER}/prefix")
set(configure "${CMAKE_COMMAND}" -G "${GENERATOR}" "-DCMAKE_BUILD_TYPE=${BUILD_TYPE}"
    "-DCMAKE_CXX_COMPILER_LAUNCHER=${LAUNCHER}")
run("install" "${CMAKE_COMMAND}" --install "${BUILD}" --prefix "${prefix}")
run("configure the consumer" ${configure} -S "${CONSUMER}" -B "${FOLDER}/build" "-DCMAKE_PREFIX_PATH=${prefix}"
    "-DFENCEGUARD_PREFIX=${prefix}")
run("build the consumer" "${CMAKE_COMMAND}" --build "${FOLDER}/build")
run("run the consumer" "${CMAKE_COMMAND}" -E chdir "${FOLDER}" "${FOLDER}/build/consumer")
if(SERVER)
  run("run the installed binary" "${prefix}/bin/fenceguard" --version)
  run("run the installed demonstration" "${prefix}/bin/fenceguard" demo)
endif()

if(REDIS)
  find_package(PkgConfig REQUIRED)
  pkg_get_variable(modules hiredis pcfiledir)
  file(COPY "${modules}/hiredis.pc" DESTINATION "${FOLDER}/modules")
  set(ENV{PKG_CONFIG_LIBDIR} "${FOLDER}/modules")
  set(configure_redis ${configure} -S "${REDIS_ONLY}" "-DCMAKE_PREFIX_PATH=${prefix}")
  foreach(foreign OpenSSL Boost SQLite3 CURL ZooKeeper)
    list(APPEND configure_redis "-DCMAKE_DISABLE_FIND_PACKAGE_${foreign}=ON")
  endforeach()
  run("configure Redis alone" ${configure_redis} -B "${FOLDER}/redis" -DFENCEGUARD_COMPONENTS=redis)
  run("build Redis alone" "${CMAKE_COMMAND}" --build "${FOLDER}/redis")
  run("run Redis alone" "${FOLDER}/redis/redis_only")
  run_refused("a component that does not exist" "fenceguard::rediss: there is no such component, only guard, "
              ${configure_redis} -B "${FOLDER}/refused" "-DFENCEGUARD_COMPONENTS=redis\;rediss")
  if(SQLITE)
    run_refused("a component whose package is not there" "fenceguard::sqlite: SQLite3 was not found"
                ${configure_redis} -B "${FOLDER}/refused" -DFENCEGUARD_COMPONENTS=sqlite)
  endif()
endif()

# A tree that is configured, without ZooKeeper, and not built.
unset(ENV{PKG_CONFIG_LIBDIR})
run("configure without ZooKeeper" ${configure} -S "${SOURCE}" -B "${FOLDER}/bare" -DFENCEGUARD_ZOOKEEPER=OFF
    -DFENCEGUARD_TESTS=OFF -DFENCEGUARD_BENCH=OFF)
run_refused("to install what is not built" "First run: cmake --build ${FOLDER}/bare --target fenceguard_installed"
            "${CMAKE_COMMAND}" --install "${FOLDER}/bare" --prefix "${FOLDER}/empty")
if(EXISTS "${FOLDER}/empty")
  message(FATAL_ERROR "half of it was installed")
endif()
run_refused("a component that was not built" "fenceguard::zookeeper: it was left out when this fenceguard was built"
            ${configure} -S "${REDIS_ONLY}" -B "${FOLDER}/refused" "-Dfenceguard_DIR=${FOLDER}/bare"
            -DFENCEGUARD_COMPONENTS=zookeeper)
