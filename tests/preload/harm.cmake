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

# The same under AddressSanitizer and UBSan, their runtimes linked statically
# (as clang does): such a program calls dlsym before its own string functions
# work. Where the compiler lacks them, the test says so.
include(CheckCXXSourceCompiles)
set(harm_sanitize -fsanitize=address,undefined -fno-sanitize-recover=undefined)
set(CMAKE_REQUIRED_FLAGS ${harm_sanitize})
list(JOIN CMAKE_REQUIRED_FLAGS " " CMAKE_REQUIRED_FLAGS)
set(CMAKE_REQUIRED_LINK_OPTIONS -static-libasan -static-libubsan)
check_cxx_source_compiles("int main() { return 0; }" INGERO_HAVE_STATIC_ASAN)
unset(CMAKE_REQUIRED_FLAGS)
unset(CMAKE_REQUIRED_LINK_OPTIONS)
if(INGERO_HAVE_STATIC_ASAN)
  add_executable(harm_client_asan harm_client.cc)
  target_compile_options(harm_client_asan PRIVATE -O1 ${harm_sanitize})
  target_link_options(harm_client_asan PRIVATE ${harm_sanitize}
    -static-libasan -static-libubsan)
  target_link_libraries(harm_client_asan PRIVATE harm_rt Threads::Threads)
endif()
