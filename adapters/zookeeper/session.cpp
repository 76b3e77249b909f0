#include "adapters/zookeeper/session.hpp"

#include <array>

#include "adapters/zookeeper/wire/handle.hpp"

namespace fenceguard::zookeeper {
namespace {

// Times that a path is made once more because what lies above it was removed meanwhile.
constexpr int path_attempts = 30;

// A sequence has ten digits, and a sign once it has overflowed.
constexpr std::size_t sequence_bytes_max = 11;

Stat stat_of(const ::Stat& stat) {
  return {stat.czxid, stat.mzxid, stat.ephemeralOwner, stat.version, stat.numChildren};
}

std::string text_of(const char* text, int length) {
  return text == nullptr || length <= 0 ? std::string{} : std::string(text, static_cast<std::size_t>(length));
}

int flags_of(Mode mode) {
  switch (mode) {
    case Mode::persistent:
      return ZOO_PERSISTENT;
    case Mode::ephemeral:
      return ZOO_EPHEMERAL;
    case Mode::persistent_sequential:
      return ZOO_PERSISTENT_SEQUENTIAL;
    case Mode::ephemeral_sequential:
      return ZOO_EPHEMERAL_SEQUENTIAL;
    case Mode::container:
      return ZOO_CONTAINER;
  }
  return ZOO_PERSISTENT;
}

int size_of(const std::string& data) {
  return static_cast<int>(data.size());
}

std::string parent_of(const std::string& path) {
  return path.substr(0, path.rfind('/'));
}

}  // namespace

Op create(std::string path, std::string data, Mode mode) {
  return {Op::Kind::create, std::move(path), std::move(data), any_version, mode};
}
Op remove(std::string path, std::int32_t version) {
  return {Op::Kind::remove, std::move(path), {}, version, Mode::persistent};
}
Op set(std::string path, std::string data, std::int32_t version) {
  return {Op::Kind::set, std::move(path), std::move(data), version, Mode::persistent};
}
Op check(std::string path, std::int32_t version) {
  return {Op::Kind::check, std::move(path), {}, version, Mode::persistent};
}

namespace {

template <class CallType>
CallType& call_of(const void* data) {
  // The C client hands back what it was given, which was not const.
  return *static_cast<CallType*>(const_cast<void*>(data));
}

}  // namespace

// The completions of the C client, and what a multi writes into.
struct Session::Calls {
  using One = SessionHandle::CallFor<Answer>;

  static std::unique_ptr<One> one(SessionHandle& handle, Access access, std::string_view doing,
                                  const std::string& path) {
    return std::make_unique<One>(handle, access, std::string{doing} + " " + path);
  }

  static void on_data(int code, const char* text, int length, const ::Stat* stat, const void* data) {
    auto& call = call_of<One>(data);
    if (code == ZOK) call.answer.data = text_of(text, length);
    if (code == ZOK) call.answer.stat = stat_of(*stat);
    finish(call, code);
  }
  static void on_stat(int code, const ::Stat* stat, const void* data) {
    auto& call = call_of<One>(data);
    if (code == ZOK) call.answer.stat = stat_of(*stat);
    finish(call, code);
  }
  static void on_children(int code, const String_vector* children, const void* data) {
    auto& call = call_of<One>(data);
    if (code == ZOK) call.answer.children.assign(children->data, children->data + children->count);
    finish(call, code);
  }
  static void on_created(int code, const char* path, const ::Stat* stat, const void* data) {
    auto& call = call_of<One>(data);
    if (code == ZOK) call.answer.path = path;
    if (code == ZOK) call.answer.stat = stat_of(*stat);
    finish(call, code);
  }
  static void on_path(int code, const char* /*path*/, const void* data) { finish(call_of<One>(data), code); }
  static void on_void(int code, const void* data) { finish(call_of<One>(data), code); }

  static void finish(One& call, int code) {
    if (const auto answer = code_of(code)) call.answer.code = *answer;
    SessionHandle::answered(call, code);
  }

  struct Multi : SessionHandle::CallFor<MultiAnswer> {
    Multi(SessionHandle& h, const std::vector<Op>& all)
        : CallFor{h, Access::write, "a multi that begins at " + (all.empty() ? "nothing" : all.front().path)},
          ops{all},
          sent(all.size()),
          results(all.size()),
          stats(all.size()),
          paths(all.size()) {
      for (std::size_t i = 0; i < ops.size(); ++i) prepare(i);
    }

    void prepare(std::size_t i) {
      const auto& op = ops[i];
      switch (op.kind) {
        case Op::Kind::create:
          paths[i].resize(op.path.size() + sequence_bytes_max + 1);
          return zoo_create_op_init(&sent[i], op.path.c_str(), op.data.data(), size_of(op.data), handle.acl(),
                                    flags_of(op.mode), paths[i].data(), static_cast<int>(paths[i].size()));
        case Op::Kind::remove:
          return zoo_delete_op_init(&sent[i], op.path.c_str(), op.version);
        case Op::Kind::set:
          return zoo_set_op_init(&sent[i], op.path.c_str(), op.data.data(), size_of(op.data), op.version,
                                 &stats[i]);
        case Op::Kind::check:
          return zoo_check_op_init(&sent[i], op.path.c_str(), op.version);
      }
    }

    void fill_in(int code) {
      if (const auto answered = code_of(code)) answer.code = *answered;
      for (std::size_t i = 0; i < ops.size(); ++i) {
        if (code == ZOK) {
          auto& one = answer.answers.emplace_back();
          if (ops[i].kind == Op::Kind::create) one.path = paths[i].data();
          if (ops[i].kind == Op::Kind::set) one.stat = stat_of(stats[i]);
        } else if (results[i].err == code) {
          // Of those before it the server says that they were well, of those after it something else.
          answer.failed = i;
          return;
        }
      }
    }

    std::vector<Op> ops;
    std::vector<zoo_op_t> sent;
    std::vector<zoo_op_result_t> results;
    std::vector<::Stat> stats;
    std::vector<std::string> paths;
  };

  static void on_multi(int code, const void* data) {
    auto& call = call_of<Multi>(data);
    call.fill_in(code);
    SessionHandle::answered(call, code);
  }
};

Session::Session(const Address& address, std::chrono::milliseconds session_timeout, Listener listener)
    : handle_{std::make_unique<SessionHandle>(address, session_timeout, std::move(listener))} {}

Session::~Session() = default;

void Session::wait_until_connected() {
  (void)handle_->connects_within(handle_->address().timeout);
  handle_->require_connected();
}

void Session::require_connected() const {
  handle_->require_connected();
}

bool Session::connects_within(std::chrono::milliseconds wait) const {
  return handle_->connects_within(wait);
}

Session::State Session::state() const noexcept {
  return handle_->state();
}

std::uint64_t Session::generation() const noexcept {
  return handle_->generation();
}

std::chrono::milliseconds Session::session_timeout() const {
  return std::chrono::milliseconds{zoo_recv_timeout(handle_->get())};
}

std::int64_t Session::id() const {
  return zoo_client_id(handle_->get())->client_id;
}

Pending<Answer> Session::begin_get(const std::string& path, Watch watch) {
  auto asked = Calls::one(*handle_, Access::read, "reading", path);
  asked->watch = handle_->add_watch(std::move(watch));
  return handle_->begin(std::move(asked), [&](auto& call) {
    return zoo_awget(handle_->get(), path.c_str(), call.watch == 0 ? nullptr : SessionHandle::on_watch,
                     reinterpret_cast<void*>(call.watch), Calls::on_data, &call);
  });
}

Pending<Answer> Session::begin_exists(const std::string& path, Watch watch) {
  auto asked = Calls::one(*handle_, Access::read, "looking at", path);
  asked->watch = handle_->add_watch(std::move(watch));
  asked->watches_absent = true;
  return handle_->begin(std::move(asked), [&](auto& call) {
    return zoo_awexists(handle_->get(), path.c_str(), call.watch == 0 ? nullptr : SessionHandle::on_watch,
                        reinterpret_cast<void*>(call.watch), Calls::on_stat, &call);
  });
}

Pending<Answer> Session::begin_get_children(const std::string& path) {
  return handle_->begin(Calls::one(*handle_, Access::read, "listing", path), [&](auto& call) {
    return zoo_aget_children(handle_->get(), path.c_str(), 0, Calls::on_children, &call);
  });
}

Pending<Answer> Session::begin_sync(const std::string& path) {
  return handle_->begin(Calls::one(*handle_, Access::read, "catching up with", path), [&](auto& call) {
    return zoo_async(handle_->get(), path.c_str(), Calls::on_path, &call);
  });
}

Pending<Answer> Session::begin_create(const std::string& path, const std::string& data, Mode mode) {
  return handle_->begin(Calls::one(*handle_, Access::write, "creating", path), [&](auto& call) {
    return zoo_acreate2(handle_->get(), path.c_str(), data.data(), size_of(data), handle_->acl(),
                        flags_of(mode), Calls::on_created, &call);
  });
}

Pending<Answer> Session::begin_set(const std::string& path, const std::string& data, std::int32_t version) {
  return handle_->begin(Calls::one(*handle_, Access::write, "setting", path), [&](auto& call) {
    return zoo_aset(handle_->get(), path.c_str(), data.data(), size_of(data), version, Calls::on_stat, &call);
  });
}

Pending<Answer> Session::begin_remove(const std::string& path, std::int32_t version) {
  return handle_->begin(Calls::one(*handle_, Access::write, "removing", path), [&](auto& call) {
    return zoo_adelete(handle_->get(), path.c_str(), version, Calls::on_void, &call);
  });
}

Pending<MultiAnswer> Session::begin_multi(const std::vector<Op>& ops,
                                          std::optional<std::uint64_t> generation) {
  auto multi = std::make_unique<Calls::Multi>(*handle_, ops);
  multi->generation = generation;
  auto& sent = *multi;
  return handle_->begin<MultiAnswer>(std::move(multi), [&](auto&) {
    return zoo_amulti(handle_->get(), static_cast<int>(sent.ops.size()), sent.sent.data(),
                      sent.results.data(), Calls::on_multi, &sent);
  });
}

void Session::make_path(const std::string& path, Mode mode) {
  // Asked for first, because a user that may not create below a parent may well use what is there.
  if (path.empty() || exists(path).code == Code::ok) return;
  for (int attempt = 0; attempt < path_attempts; ++attempt) {
    if (create(path, "", mode).code != Code::no_node) return;
    make_path(parent_of(path), mode);
  }
  throw Unavailable("making " + path + ": what lies above it is removed as often as it is made");
}

}  // namespace fenceguard::zookeeper
