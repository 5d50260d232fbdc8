# SPDX-License-Identifier: Apache-2.0
# What the hot path and a thread may cost, counted.
if(CMAKE_C_FLAGS MATCHES sanitize)
  # A sanitizer's calls allocate and fault by themselves.
  add_test(NAME hot_path_steady_test COMMAND ${CMAKE_COMMAND} -E echo
    "SKIP: built with a sanitizer, whose own work would be counted")
  set_tests_properties(hot_path_steady_test PROPERTIES LABELS unit
    SKIP_REGULAR_EXPRESSION "SKIP:")
  return()
endif()
add_executable(steady_client steady_client.c)
target_include_directories(steady_client PRIVATE ${CMAKE_SOURCE_DIR})
target_compile_definitions(steady_client PRIVATE _GNU_SOURCE)
target_compile_options(steady_client PRIVATE -O2 -Wall -Wextra)
target_link_libraries(steady_client PRIVATE small_rt13 Threads::Threads)
foreach(mode IN ITEMS steady memory)
  add_test(NAME hot_path_${mode}_test
    COMMAND sh ${CMAKE_CURRENT_SOURCE_DIR}/with_shim.sh
      $<TARGET_FILE:ingero_cuda> $<TARGET_FILE:steady_client> ${mode})
  set_tests_properties(hot_path_${mode}_test PROPERTIES LABELS unit
    TIMEOUT 120 SKIP_RETURN_CODE 77)
endforeach()

# What the shim costs a process without CUDA, counted.
add_executable(count_syscalls count_syscalls.c)
target_compile_definitions(count_syscalls PRIVATE _GNU_SOURCE)
target_compile_options(count_syscalls PRIVATE -O2 -Wall -Wextra)
add_test(NAME startup_test
  COMMAND Python3::Interpreter ${CMAKE_CURRENT_SOURCE_DIR}/startup_test.py
    $<TARGET_FILE:ingero_cuda> $<TARGET_FILE:count_syscalls>)
set_tests_properties(startup_test PROPERTIES LABELS unit TIMEOUT 120
  SKIP_RETURN_CODE 77)
