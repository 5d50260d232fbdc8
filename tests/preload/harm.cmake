# SPDX-License-Identifier: Apache-2.0
# What a program could notice of the shim, and what trouble may cost.
ingero_stand_in(harm_cuda libcuda.so.1 "" harm_runtime.c DRIVER)
ingero_stand_in(harm_rt libcudart.so.13 libcudart.so.13 harm_runtime.c)
target_link_libraries(harm_rt PRIVATE harm_cuda)
# As -O2 leaves it: the frame address is then the saved %rbp of that function.
foreach(target IN ITEMS harm_cuda harm_rt)
  target_compile_options(${target} PRIVATE -O1 -fno-omit-frame-pointer)
endforeach()
add_executable(harm_client harm_client.cc)
target_link_libraries(harm_client PRIVATE harm_rt Threads::Threads)

add_test(NAME harm_test
  COMMAND Python3::Interpreter ${CMAKE_CURRENT_SOURCE_DIR}/harm_test.py
    --shim $<TARGET_FILE:ingero_cuda> --bin ${CMAKE_CURRENT_BINARY_DIR}
    --lib ${dir} --fakes ${CMAKE_BINARY_DIR}/lib/fake_cuda)
set_tests_properties(harm_test PROPERTIES LABELS unit TIMEOUT 300)
