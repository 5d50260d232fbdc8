// SPDX-License-Identifier: Apache-2.0
// library_client MODE ...: calls the simulated NCCL, cuBLAS and cuDNN in every
// way that a program may. Prints what a program can see of it; stops where an
// argument or a result is not as it was passed.
//
// LINKED: linked to them, so calls go through PLT and GOT. Without: a host for
// plug-ins, which reaches them by dlsym.
#include <dlfcn.h>
#include <link.h>
#include <setjmp.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <ucontext.h>
#include <unistd.h>
#include <unwind.h>

#include <string>
#include <thread>
#include <vector>

#include "library_calls.h"

extern "C" int cudaDeviceSynchronize();

namespace {

void* Must(void* p) {
  if (p == nullptr) {
    fprintf(stderr, "%s\n", dlerror());
    exit(4);
  }
  return p;
}

[[maybe_unused]] Functions ByName(void* handle) {
  Functions f;
#define X(name) \
  f.name = reinterpret_cast<decltype(f.name)>(Must(dlsym(handle, #name)));
  LIBRARY_FUNCTIONS(X)
#undef X
  return f;
}

// dlsym looks into a library and what it needs.
Functions FromLibraries() {
  void* nccl = Must(dlopen("libnccl.so.2", RTLD_NOW));
  void* cublas = Must(dlopen("libcublas.so.13", RTLD_NOW));
  void* cudnn = Must(dlopen("libcudnn.so.9", RTLD_NOW));
  Functions f;
#define X(name)                                                   \
  f.name = reinterpret_cast<decltype(f.name)>(                    \
      Must(dlsym(#name[0] == 'n'   ? nccl                         \
                 : #name[1] == 'u' && #name[2] == 'd' ? cudnn     \
                                                      : cublas,   \
                 #name)));
  LIBRARY_FUNCTIONS(X)
#undef X
  return f;
}

[[maybe_unused]] int Frames(void* to) {
  std::vector<void*> frames;
  _Unwind_Backtrace(
      [](_Unwind_Context* context, void* out) {
        static_cast<std::vector<void*>*>(out)->push_back(
            reinterpret_cast<void*>(_Unwind_GetIP(context)));
        return _URC_NO_REASON;
      },
      &frames);
  int ours = 0;
  for (void* ip : frames) {
    Dl_info info;
    // The program's own frames on both sides of the library's.
    if (dladdr(ip, &info) && info.dli_fname &&
        strstr(info.dli_fname, "library_client"))
      ++ours;
  }
  *static_cast<int*>(to) = ours;
  return static_cast<int>(frames.size()) > 3 ? 0 : 1;
}

#ifdef LINKED
// Calls, not pointers.
struct Direct {
#define X(name) \
  static constexpr auto name = [](auto... a) { return ::name(a...); };
  LIBRARY_FUNCTIONS(X)
#undef X
};

const Functions kLinked = {
#define X(name) ::name,
    LIBRARY_FUNCTIONS(X)
#undef X
};

int ThrowInside(void*) { throw std::string("inside"); }
jmp_buf g_jump;
int JumpInside(void*) { longjmp(g_jump, 7); }
int Nested(void* data) {
  return cublasTestCall([](void* d) { return *static_cast<int*>(d); }, data);
}

// A call with its arguments across the last page of a stack, and next to it.
int g_results[2];
void OnSmallStack() {
  ncclUniqueId id = {};
  void* comm = nullptr;
  g_results[0] = ncclCommInitRank(&comm, 1, id, 0) ==
                 static_cast<int>(HashOf(&comm, 1, id, 0));
  int version = 0;
  g_results[1] = ncclGetVersion(&version) == 0 && version == 22809;
}

// Calls with a stack before a page that cannot be read, at every position of
// its end with respect to that page.
template <typename Call>  // (lowest address, bytes)
void OnStacks(Call call) {
  constexpr size_t kStack = 256 << 10, kPage = 4096;
  char* area = static_cast<char*>(mmap(nullptr, kStack + kPage, PROT_NONE,
                                       MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
  EXPECT(area != MAP_FAILED);
  EXPECT(mprotect(area, kStack, PROT_READ | PROT_WRITE) == 0);
  for (size_t below = 0; below < 1024; below += 16) call(area, kStack - below);
  munmap(area, kStack + kPage);
}

void SmallStack(char* stack, size_t bytes) {
  ucontext_t here, there;
  getcontext(&there);
  there.uc_stack.ss_sp = stack;
  there.uc_stack.ss_size = bytes;
  there.uc_link = &here;
  makecontext(&there, OnSmallStack, 0);
  g_results[0] = g_results[1] = 0;
  swapcontext(&here, &there);
  EXPECT(g_results[0] == 1 && g_results[1] == 1);
}

// Its only argument, and nothing mapped above the return address: as little
// stack as a call can have.
extern "C" void BareTop(void* top, int (*f)(int*), int* argument);
__asm__(
    ".text\n.type BareTop, @function\nBareTop:\n"
    "  push %rbp\n  mov %rsp, %rbp\n  mov %rdi, %rsp\n"
    "  mov %rdx, %rdi\n  call *%rsi\n"
    "  mov %rbp, %rsp\n  pop %rbp\n  ret\n.size BareTop, . - BareTop\n");
void TopOfStack(char* stack, size_t bytes) {
  int version = 0;
  BareTop(stack + bytes, ncclGetVersion, &version);
  EXPECT(version == 22809);
}

// What the program's PLT jumps through for that function.
uintptr_t* SlotOf(const char* name) {
  const ElfW(Sym)* symbols = nullptr;
  const ElfW(Rela)* plt = nullptr;
  const char* strings = nullptr;
  size_t bytes = 0;
  link_map* program = nullptr;
  EXPECT(dlinfo(dlopen(nullptr, RTLD_NOW), RTLD_DI_LINKMAP, &program) == 0);
  for (const ElfW(Dyn)* d = program->l_ld; d->d_tag != DT_NULL; ++d) {
    if (d->d_tag == DT_SYMTAB)
      symbols = reinterpret_cast<const ElfW(Sym)*>(d->d_un.d_ptr);
    else if (d->d_tag == DT_STRTAB)
      strings = reinterpret_cast<const char*>(d->d_un.d_ptr);
    else if (d->d_tag == DT_JMPREL)
      plt = reinterpret_cast<const ElfW(Rela)*>(d->d_un.d_ptr);
    else if (d->d_tag == DT_PLTRELSZ)
      bytes = d->d_un.d_val;
  }
  for (size_t i = 0; i < bytes / sizeof *plt; ++i)
    if (strcmp(strings + symbols[ELF64_R_SYM(plt[i].r_info)].st_name, name) ==
        0)
      return reinterpret_cast<uintptr_t*>(program->l_addr + plt[i].r_offset);
  EXPECT(!"a reference of the PLT");
  return nullptr;
}
#endif

Functions FromPlugIn(void* plug_in) {
  const Functions* (*table)();
  *reinterpret_cast<void**>(&table) = Must(dlsym(plug_in, "plug_in_table"));
  return *table();
}

void CallPlugIn(void* plug_in, int seed) {
  void (*call)(int);
  *reinterpret_cast<void**>(&call) = Must(dlsym(plug_in, "plug_in_call"));
  call(seed);
}

}  // namespace

int main(int argc, char** argv) {
  const std::string mode = argc > 1 ? argv[1] : "";
  if (mode == "dlsym") {
    CallAll(FromLibraries(), 3);
  } else if (mode == "plug-in") {  // FILE TIMES: loaded, called, unloaded
    for (int i = 0; i < atoi(argv[3]); ++i) {
      void* plug_in = Must(dlopen(argv[2], RTLD_NOW | RTLD_LOCAL));
      CallPlugIn(plug_in, i);
      CallAll(FromPlugIn(plug_in), i);
      EXPECT(dlclose(plug_in) == 0);
    }
  } else if (mode == "many") {  // FILE FUNCTIONS: each called twice
    void* library = Must(dlopen(argv[2], RTLD_NOW));
    for (int i = 0; i < atoi(argv[3]); ++i) {
      char name[32];
      snprintf(name, sizeof name, "cudnnMany%04d", i);
      int (*f)(int);
      *reinterpret_cast<void**>(&f) = Must(dlsym(library, name));
      EXPECT(f(3) == i + 3 && f(5) == i + 5);
    }
#ifdef LINKED
  } else if (mode == "call") {
    CallAll(Direct{}, 1);
    EXPECT(ncclNetPlugin_v8[3] == 8000);
    EXPECT(&ncclNetPlugin_v8 == dlsym(RTLD_DEFAULT, "ncclNetPlugin_v8"));
  } else if (mode == "data") {  // a table of pointers
    CallAll(kLinked, 2);
    EXPECT(kLinked.cublasCreate_v2 == &cublasCreate_v2);
    EXPECT(reinterpret_cast<void*>(kLinked.cublasCreate_v2) ==
           dlsym(RTLD_DEFAULT, "cublasCreate_v2"));
  } else if (mode == "default") {
    CallAll(ByName(RTLD_DEFAULT), 4);
  } else if (mode == "threads") {
    std::vector<std::thread> threads;
    for (int i = 0; i < 8; ++i)
      threads.emplace_back([i] {
        for (int k = 0; k < 50; ++k) CallAll(kLinked, i);
        CallAll(ByName(RTLD_DEFAULT), i);
      });
    for (std::thread& t : threads) t.join();
  } else if (mode == "leave") {  // ways out of a call that is not a return
    std::string caught;
    try {
      cublasTestCall(ThrowInside, nullptr);
    } catch (const std::string& s) {
      caught = s;
    }
    EXPECT(caught == "inside");
    if (setjmp(g_jump) == 0) cublasTestCall(JumpInside, nullptr);
    int frames = 0;
    EXPECT(cublasTestCall(Frames, &frames) == 0);
    int value = 77;
    EXPECT(cublasTestCall(Nested, &value) == 77);
    printf("%d frames of ours\n", frames);
  } else if (mode == "stack") {
    OnStacks(SmallStack);
    OnStacks(TopOfStack);
  } else if (mode == "fork") {
    int version = 0;
    EXPECT(ncclGetVersion(&version) == 0);
    const pid_t child = fork();
    if (child == 0) {
      CallAll(kLinked, 5);
      exit(0);
    }
    int status = -1;
    EXPECT(waitpid(child, &status, 0) == child && status == 0);
  } else if (mode == "missing") {
    EXPECT(dlsym(RTLD_DEFAULT, "cublasNoSuchThing") == nullptr);
    printf("%d\n", strstr(dlerror(), "cublasNoSuchThing") != nullptr);
    EXPECT(dlsym(RTLD_NEXT, "ncclGetVersion") != nullptr);
  } else if (mode == "escape") {  // FILE: by ways that cannot be replaced
    int (*f)(int*), version = 0;
    *reinterpret_cast<void**>(&f) = Must(dlsym(RTLD_NEXT, "ncclGetVersion"));
    EXPECT(f(&version) == 0 && version == 22809);
    void* plug_in = Must(dlopen(argv[2], RTLD_NOW));
    f = *static_cast<int (**)(int*)>(
        Must(dlsym(plug_in, "plug_in_read_only")));
    version = 0;
    EXPECT(f(&version) == 0 && version == 22809);
    EXPECT(cublasSetStream_v2(nullptr, nullptr) == 0);
  } else if (mode == "late") {  // the loader's store comes after the shim's
    *SlotOf("ncclTestLate") = reinterpret_cast<uintptr_t>(fake_nccl_late());
    EXPECT(ncclTestLate(1) == 2);
    EXPECT(cudaDeviceSynchronize() == 0);  // looks again
    EXPECT(ncclTestLate(2) == 3);
  } else if (mode == "simulate") {  // STEPS: a small program
    void* handle = nullptr;
    EXPECT(cublasCreate_v2(&handle) == 0);
    for (int i = 0; i < atoi(argv[2]); ++i) {
      EXPECT(cudnnConvolutionForward(handle, 3) == 0);
      EXPECT(cublasSgemm_v2(handle, 6) == 0);
    }
#endif
  } else {
    return 2;
  }
  puts("done");
  return 0;
}
