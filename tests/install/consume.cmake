# Installs BUILD into an empty prefix, builds the project CONSUMER against it, and runs both.

function(run what)
  execute_process(COMMAND ${ARGN} RESULT_VARIABLE status OUTPUT_VARIABLE output ERROR_VARIABLE output)
  if(NOT status EQUAL 0)
    message(FATAL_ERROR "${what} failed (${status}):\n${output}")
  endif()
  message(STATUS "${what}: done")
endfunction()

file(REMOVE_RECURSE "${FOLDER}")
set(prefix "${FOLDER}/prefix")
run("install" "${CMAKE_COMMAND}" --install "${BUILD}" --prefix "${prefix}")
run("configure the consumer" "${CMAKE_COMMAND}" -S "${CONSUMER}" -B "${FOLDER}/build" -G "${GENERATOR}"
    "-DCMAKE_PREFIX_PATH=${prefix}" "-DCMAKE_BUILD_TYPE=${BUILD_TYPE}"
    "-DCMAKE_CXX_COMPILER_LAUNCHER=${LAUNCHER}" "-DFENCEGUARD_PREFIX=${prefix}")
run("build the consumer" "${CMAKE_COMMAND}" --build "${FOLDER}/build")
run("run the consumer" "${CMAKE_COMMAND}" -E chdir "${FOLDER}" "${FOLDER}/build/consumer")
if(SERVER)
  run("run the installed binary" "${prefix}/bin/fenceguard" --version)
endif()
