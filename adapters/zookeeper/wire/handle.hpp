#pragma once

// The C client's handle behind a Session, and the memory of what was asked of it: a call lives here until its
// answer came or the handle is closed, whether a caller still waits for it or not, because the C client
// writes into it.
//
// Thread-safe but for its construction and destruction.

#include <zookeeper/zookeeper.h>

#include <condition_variable>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <unordered_map>

#include "adapters/zookeeper/address.hpp"
#include "adapters/zookeeper/answer.hpp"
#include "adapters/zookeeper/wire/errors.hpp"
#include "adapters/zookeeper/wire/session_state.hpp"

namespace fenceguard::zookeeper {

class SessionHandle {
 public:
  using State = SessionState;
  using Watch = NodeWatch;
  using Listener = std::function<void(State)>;

  // What was asked, until it is answered.
  struct Call {
    Call(SessionHandle& h, Access a, std::string d) : handle{h}, access{a}, doing{std::move(d)} {}
    Call(const Call&) = delete;
    Call& operator=(const Call&) = delete;
    virtual ~Call() = default;
    virtual void fail(const Fault& fault) = 0;

    SessionHandle& handle;
    const Access access;
    const std::string doing;
    std::uintptr_t watch = 0;                   // 0: none
    bool watches_absent = false;                // the watch is set on a node that does not exist, too
    std::optional<std::uint64_t> generation{};  // only over this connection; nothing: over whichever it is
  };

  template <class T>
  struct CallFor : Call {
    using Call::Call;
    void fail(const Fault& fault) override { promise.set_value(fault); }

    T answer{};
    std::promise<Outcome<T>> promise;
  };

  SessionHandle(const Address& address, std::chrono::milliseconds session_timeout, Listener listener);
  ~SessionHandle();
  SessionHandle(const SessionHandle&) = delete;
  SessionHandle& operator=(const SessionHandle&) = delete;

  [[nodiscard]] State state() const;
  [[nodiscard]] std::uint64_t generation() const;
  void require_connected() const;
  [[nodiscard]] bool connects_within(std::chrono::milliseconds wait) const;
  [[nodiscard]] const Address& address() const noexcept { return address_; }
  [[nodiscard]] zhandle_t* get() const noexcept { return handle_; }
  [[nodiscard]] const ACL_vector* acl() const noexcept;

  // Keeps call until its answer came, and calls begin, which hands it to the C client and returns the code of
  // that. What was not sent has failed at once.
  template <class T, class Begin>
  Pending<T> begin(std::unique_ptr<CallFor<T>> call, const Begin& begin) {
    auto& kept = *call;
    Pending<T> pending{kept.promise.get_future(), std::chrono::steady_clock::now() + address_.timeout,
                       late_fault(kept.access, kept.doing, address_.timeout)};
    if (!keep(std::move(call))) return pending;
    if (const int code = begin(kept); code != ZOK) not_sent(kept, code);
    return pending;
  }

  // The call was answered with this code, and its answer is filled in where that is one.
  template <class T>
  static void answered(CallFor<T>& call, int code) {
    const auto kept = call.handle.take(call, code);
    if (!code_of(code)) return call.fail(fault_of(code, call.access, call.doing));
    call.promise.set_value(std::move(call.answer));
  }

  // Remembers the handler and gives it a number, by which the C client knows it.
  [[nodiscard]] std::uintptr_t add_watch(Watch watch);
  static void on_watch(zhandle_t* handle, int type, int state, const char* path, void* number);

 private:
  static void on_session(zhandle_t* handle, int type, int state, const char* path, void* self);
  void changed_to(State state);
  void end_watches();
  [[nodiscard]] bool keep(std::unique_ptr<Call> call);
  [[nodiscard]] std::unique_ptr<Call> take(Call& call, int code);
  void not_sent(Call& call, int code);

  const Address address_;
  const Listener listener_;
  mutable std::mutex mutex_;  // guards what follows
  mutable std::condition_variable changed_;
  State state_ = State::connecting;
  std::uint64_t generation_ = 0;  // 0: not connected
  bool is_closing_ = false;
  std::unordered_map<const Call*, std::unique_ptr<Call>> calls_;
  std::map<std::uintptr_t, Watch> watches_;
  std::uintptr_t last_watch_ = 0;
  zhandle_t* handle_ = nullptr;  // constant once made
};

}  // namespace fenceguard::zookeeper
