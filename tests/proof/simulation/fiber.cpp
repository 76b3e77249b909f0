#include "tests/proof/simulation/fiber.hpp"

#include <cxxabi.h>
#include <dlfcn.h>
#include <pthread.h>
#include <ucontext.h>

#include <csetjmp>
#include <cstring>
#include <exception>
#include <unordered_map>
#include <utility>
#include <vector>

namespace fenceguard::proof {
namespace {

constexpr std::size_t stack_bytes = 256 * 1024;

// What the C++ runtime keeps per thread of the exceptions that are under way: an opaque pair of a pointer and
// a count (Itanium C++ ABI, 2.2.2).
struct ExceptionState {
  void* caught = nullptr;
  unsigned int uncaught = 0;

  static void swap(ExceptionState& other) {
    auto* globals = abi::__cxa_get_globals();
    ExceptionState now;
    std::memcpy(&now.caught, globals, sizeof now.caught);
    std::memcpy(&now.uncaught, reinterpret_cast<char*>(globals) + sizeof now.caught, sizeof now.uncaught);
    std::memcpy(static_cast<void*>(globals), &other.caught, sizeof now.caught);
    std::memcpy(reinterpret_cast<char*>(globals) + sizeof now.caught, &other.uncaught, sizeof now.uncaught);
    other = now;
  }
};

// Stacks are used again: to map and fault in new ones for each history would cost more than the history.
std::vector<std::unique_ptr<char[]>>& spare_stacks() {
  thread_local std::vector<std::unique_ptr<char[]>> stacks;
  return stacks;
}

thread_local Fiber* running = nullptr;

struct HeldThread {
  void* (*run)(void*);
  void* argument;
};
std::unordered_map<pthread_t, HeldThread> held_threads;

template <class Function>
Function next_of(Function, const char* name) {
  return reinterpret_cast<Function>(dlsym(RTLD_NEXT, name));
}

}  // namespace

struct Fiber::Impl {
  std::function<void()> body;
  std::unique_ptr<char[]> stack;
  ucontext_t own{}, outside{};
  // Once it has begun it is left and entered by these: swapcontext() calls the kernel each time, for signal
  // masks.
  std::jmp_buf inside_now, outside_now;
  ExceptionState exceptions;
  bool is_begun = false, is_over = false;

  static void enter(unsigned low, unsigned high) {
    auto* impl = reinterpret_cast<Impl*>(static_cast<std::uintptr_t>(high) << 32 | low);
    try {
      impl->body();
    } catch (...) {
      std::terminate();
    }
    impl->is_over = true;
    stop();
  }
};

Fiber::Fiber(std::function<void()> body) : impl_{std::make_unique<Impl>()} {
  impl_->body = std::move(body);
  auto& spare = spare_stacks();
  if (spare.empty()) {
    impl_->stack.reset(new char[stack_bytes]);
  } else {
    impl_->stack = std::move(spare.back());
    spare.pop_back();
  }
  getcontext(&impl_->own);
  impl_->own.uc_stack.ss_sp = impl_->stack.get();
  impl_->own.uc_stack.ss_size = stack_bytes;
  const auto address = reinterpret_cast<std::uintptr_t>(impl_.get());
  makecontext(&impl_->own, reinterpret_cast<void (*)()>(&Impl::enter), 2, static_cast<unsigned>(address),
              static_cast<unsigned>(address >> 32));
}

Fiber::~Fiber() {
  if (!impl_->is_over) std::terminate();
  spare_stacks().push_back(std::move(impl_->stack));
}

void Fiber::resume() {
  running = this;
  ExceptionState::swap(impl_->exceptions);
  if (_setjmp(impl_->outside_now) == 0) {
    if (impl_->is_begun) std::longjmp(impl_->inside_now, 1);
    impl_->is_begun = true;
    swapcontext(&impl_->outside, &impl_->own);
  }
  ExceptionState::swap(impl_->exceptions);
  running = nullptr;
}

void Fiber::stop() {
  Impl& impl = *running->impl_;
  if (_setjmp(impl.inside_now) == 0) std::longjmp(impl.outside_now, 1);
}

Fiber* Fiber::current() noexcept {
  return running;
}

bool Fiber::is_over() const noexcept {
  return impl_->is_over;
}

}  // namespace fenceguard::proof

// A thread that a fiber starts runs when it is joined. Those of a Lease only wait, for longer than a history
// lasts, until they are told to stop; to start and end them took most of a history's time.
extern "C" int pthread_create(pthread_t* thread, const pthread_attr_t* attributes, void* (*run)(void*),
                              void* argument) noexcept {
  static const auto start = fenceguard::proof::next_of(&pthread_create, "pthread_create");
  if (fenceguard::proof::Fiber::current() == nullptr) return start(thread, attributes, run, argument);
  static pthread_t last = 0;
  *thread = ++last;  // no address, as those of real ones are
  fenceguard::proof::held_threads.emplace(*thread, fenceguard::proof::HeldThread{run, argument});
  return 0;
}

extern "C" int pthread_join(pthread_t thread, void** result) {
  static const auto join = fenceguard::proof::next_of(&pthread_join, "pthread_join");
  const auto held = fenceguard::proof::held_threads.extract(thread);
  if (held.empty()) return join(thread, result);
  void* const told = held.mapped().run(held.mapped().argument);
  if (result != nullptr) *result = told;
  return 0;
}
