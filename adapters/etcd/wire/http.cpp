#include "adapters/etcd/wire/http.hpp"

#include <curl/curl.h>
#include <fmt/format.h>

#include <algorithm>
#include <new>

#include "guard/error.hpp"
#include "guard/support/clock.hpp"

namespace fenceguard::etcd {
namespace {

constexpr std::size_t line_bytes_max = 16 * 1024 * 1024;
constexpr std::chrono::milliseconds look_at_clock{500};

void initialise_once() {
  static const CURLcode result = curl_global_init(CURL_GLOBAL_DEFAULT);
  if (result != CURLE_OK) throw Unavailable("libcurl cannot be initialised");
}

using List = std::unique_ptr<curl_slist, decltype(&curl_slist_free_all)>;

void append(List& list, const std::string& text) {
  auto* const longer = curl_slist_append(list.get(), text.c_str());
  if (longer == nullptr) throw std::bad_alloc{};
  (void)list.release();
  list.reset(longer);
}

}  // namespace

// One easy handle, with the connections that it keeps.
class Http::Handle {
 public:
  explicit Handle(const Address& address) : address_{address} {
    initialise_once();
    easy_.reset(curl_easy_init());
    if (!easy_) throw std::bad_alloc{};
    set(CURLOPT_ERRORBUFFER, error_);
    set(CURLOPT_NOSIGNAL, 1L);
    set(CURLOPT_TCP_NODELAY, 1L);
    set(CURLOPT_TCP_KEEPALIVE, 1L);
    set(CURLOPT_HTTP_VERSION, static_cast<long>(CURL_HTTP_VERSION_1_1));
    set(CURLOPT_POST, 1L);
    // What a proxy would answer for etcd proves nothing.
    set(CURLOPT_PROXY, "");
    set(CURLOPT_CONNECTTIMEOUT_MS, static_cast<long>(address.connect_timeout.count()));
    // Asked before each request that goes out, so that the second one for the same call can be refused, and
    // what was never begun is known.
    set(CURLOPT_PREREQFUNCTION, &Handle::on_request);
    set(CURLOPT_PREREQDATA, this);
    set(CURLOPT_WRITEFUNCTION, &Handle::on_write);
    set(CURLOPT_WRITEDATA, this);
    set_tls(address.tls);
  }

  Reply post(const Request& request) {
    const auto prepared = prepare(request);
    set(CURLOPT_TIMEOUT_MS, static_cast<long>(request.time_max.count()));
    return reply(curl_easy_perform(easy_.get()));
  }

  Reply follow(const Request& request, const Following& following);

  // As post(), in a multi handle, until end(). Of libcurl's result comes the reply.
  void begin(CURLM* multi, const Request& request) {
    prepared_ = prepare(request);
    set(CURLOPT_TIMEOUT_MS, static_cast<long>(request.time_max.count()));
    if (curl_multi_add_handle(multi, easy_.get()) != CURLM_OK) throw std::bad_alloc{};
  }
  void end(CURLM* multi) noexcept { curl_multi_remove_handle(multi, easy_.get()); }
  [[nodiscard]] bool is_of(const CURL* easy) const noexcept { return easy_.get() == easy; }

  Reply reply(CURLcode code) {
    Reply reply;
    if (code == CURLE_OK) {
      long status = 0;
      curl_easy_getinfo(easy_.get(), CURLINFO_RESPONSE_CODE, &status);
      reply.ending = Reply::Ending::answered;
      reply.status = static_cast<int>(status);
      reply.body = std::move(answer_);
      return reply;
    }
    reply.ending = was_begun_ ? Reply::Ending::unanswered : Reply::Ending::not_sent;
    reply.why = fmt::format("{}: {}", endpoint_, error_[0] == '\0' ? curl_easy_strerror(code) : error_);
    return reply;
  }

 private:
  struct Prepared {
    List headers{nullptr, curl_slist_free_all};
    List places{nullptr, curl_slist_free_all};
  };

  template <class Value>
  void set(CURLoption option, Value value) {
    if (curl_easy_setopt(easy_.get(), option, value) != CURLE_OK)
      throw Unavailable(fmt::format("libcurl lacks option {}", static_cast<int>(option)));
  }

  void set_tls(const Tls& tls) {
    if (!tls.cacert.empty()) set(CURLOPT_CAINFO, tls.cacert.c_str());
    if (!tls.cert.empty()) set(CURLOPT_SSLCERT, tls.cert.c_str());
    if (!tls.key.empty()) set(CURLOPT_SSLKEY, tls.key.c_str());
  }

  // What it returns must live for as long as the request.
  Prepared prepare(const Request& request) {
    Prepared prepared;
    // No 'Expect: 100-continue', which would be one more round trip.
    append(prepared.headers, "Expect:");
    append(prepared.headers, "Content-Type: application/json");
    if (!request.token.empty()) append(prepared.headers, "Authorization: " + request.token);
    set(CURLOPT_HTTPHEADER, prepared.headers.get());
    auto url = request.endpoint;
    if (const auto& name = address_.tls.server_name; !name.empty()) {
      // The certificate is that of server_name, the connection goes to the endpoint.
      const auto host = url.find("//") + 2;
      append(prepared.places, "::" + url.substr(host));
      url = url.substr(0, host) + name + url.substr(url.rfind(':'));
      set(CURLOPT_CONNECT_TO, prepared.places.get());
    }
    url += request.path;
    set(CURLOPT_URL, url.c_str());
    endpoint_ = request.endpoint;
    body_ = request.body;
    set(CURLOPT_POSTFIELDSIZE_LARGE, static_cast<curl_off_t>(body_.size()));
    set(CURLOPT_POSTFIELDS, body_.c_str());
    was_begun_ = false;
    answer_.clear();
    error_[0] = '\0';
    return prepared;
  }

  static int on_request(void* data, char*, char*, int, int) noexcept {
    auto& self = *static_cast<Handle*>(data);
    if (self.was_begun_) return CURL_PREREQFUNC_ABORT;
    self.was_begun_ = true;
    return CURL_PREREQFUNC_OK;
  }

  static std::size_t on_write(char* from, std::size_t size, std::size_t count, void* data) noexcept {
    auto& self = *static_cast<Handle*>(data);
    try {
      self.answer_.append(from, size * count);
    } catch (const std::bad_alloc&) {
      return 0;
    }
    return size * count;
  }

  // How long to sleep at most, in milliseconds: no longer than until the next call is due, and some time.
  static int poll_ms(const Following& following) {
    const auto most =
        following.meanwhile.call ? std::min(following.meanwhile.every, look_at_clock) : look_at_clock;
    return static_cast<int>(std::clamp(following.time_max, std::chrono::milliseconds{1}, most).count());
  }

  // False once a line says that it was the last.
  bool pass_lines(const Following& following) {
    for (;;) {
      const auto end = answer_.find('\n');
      if (end == std::string::npos) return answer_.size() < line_bytes_max;
      const auto line = answer_.substr(0, end);
      answer_.erase(0, end + 1);
      if (!line.empty() && !following.on_line(line)) return false;
    }
  }

  const Address& address_;
  std::unique_ptr<CURL, decltype(&curl_easy_cleanup)> easy_{nullptr, curl_easy_cleanup};
  char error_[CURL_ERROR_SIZE]{};
  std::string endpoint_;
  std::string body_;
  bool was_begun_ = false;
  std::string answer_;
  Prepared prepared_;  // of begin()
};

// Several requests at once, and the connections that are kept for them.
class Http::Hedge {
 public:
  Hedge() {
    initialise_once();
    multi_.reset(curl_multi_init());
    if (!multi_) throw std::bad_alloc{};
  }
  ~Hedge() { end_all(); }
  Hedge(const Hedge&) = delete;
  Hedge& operator=(const Hedge&) = delete;

  void post(const Address& address, std::span<const Request> requests, const Hedged& hedged) {
    running_.resize(requests.size());
    std::size_t begun = 0;
    std::size_t ended = 0;
    auto due = BootClock::now();
    while (ended < requests.size()) {
      if (begun < requests.size() && (ended == begun || BootClock::now() >= due)) {
        if (begun > 0 && running_[begun - 1]) hedged.on_late(begun - 1);
        running_[begun] = std::make_unique<Handle>(address);
        running_[begun]->begin(multi_.get(), requests[begun]);
        ++begun;
        due = BootClock::now() + hedged.delay;
      }
      int count = 0;
      curl_multi_perform(multi_.get(), &count);
      while (const auto* const message = curl_multi_info_read(multi_.get(), &count)) {
        ++ended;
        if (is_last(*message, hedged)) return end_all();
      }
      if (ended < begun)
        curl_multi_poll(multi_.get(), nullptr, 0, wait_ms(begun < requests.size(), due), nullptr);
    }
    end_all();
  }

 private:
  bool is_last(const CURLMsg& message, const Hedged& hedged) {
    const auto at = std::ranges::find_if(
        running_, [&](const auto& one) { return one && one->is_of(message.easy_handle); });
    const auto handle = std::move(*at);
    auto reply = handle->reply(message.data.result);
    handle->end(multi_.get());
    return hedged.on_reply(static_cast<std::size_t>(at - running_.begin()), std::move(reply));
  }

  static int wait_ms(bool has_next, BootClock::time_point due) {
    if (!has_next) return static_cast<int>(look_at_clock.count());
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(due - BootClock::now());
    return static_cast<int>(std::clamp(left, std::chrono::milliseconds{0}, look_at_clock).count());
  }

  void end_all() noexcept {
    for (const auto& one : running_) {
      if (one) one->end(multi_.get());
    }
    running_.clear();
  }

  std::unique_ptr<CURLM, decltype(&curl_multi_cleanup)> multi_{nullptr, curl_multi_cleanup};
  std::vector<std::unique_ptr<Handle>> running_;  // in the order of the requests; null: not begun, or ended
};

Http::Reply Http::Handle::follow(const Request& request, const Following& following) {
  const auto prepared = prepare(request);
  set(CURLOPT_TIMEOUT_MS, 0L);
  const std::unique_ptr<CURLM, decltype(&curl_multi_cleanup)> multi{curl_multi_init(), curl_multi_cleanup};
  if (!multi) throw std::bad_alloc{};
  if (curl_multi_add_handle(multi.get(), easy_.get()) != CURLM_OK) throw std::bad_alloc{};
  const struct Removal {
    CURLM* multi;
    CURL* easy;
    ~Removal() { curl_multi_remove_handle(multi, easy); }
  } removal{multi.get(), easy_.get()};
  const std::stop_callback wake{following.stop, [&] { curl_multi_wakeup(multi.get()); }};
  const auto begin = BootClock::now();
  auto called_at = begin;
  bool has_begun = false;
  while (!following.stop.stop_requested() && BootClock::now() - begin < following.time_max) {
    int running = 0;
    int left = 0;
    curl_multi_perform(multi.get(), &running);
    has_begun = has_begun || !answer_.empty();
    if (!pass_lines(following)) break;
    if (const auto* const message = curl_multi_info_read(multi.get(), &left))
      return reply(message->data.result);
    if (!has_begun && BootClock::now() - begin > address_.timeout)
      return {Reply::Ending::unanswered, 0, {}, endpoint_ + ": no answer in time"};
    if (following.meanwhile.call && BootClock::now() - called_at >= following.meanwhile.every) {
      called_at = BootClock::now();
      if (!following.meanwhile.call()) break;
    }
    curl_multi_poll(multi.get(), nullptr, 0, poll_ms(following), nullptr);
  }
  return {Reply::Ending::answered, 0, {}, {}};
}

Http::Http(const Address& address) : address_{address} {}
Http::~Http() = default;

std::unique_ptr<Http::Handle> Http::take() {
  {
    const std::scoped_lock lock{mutex_};
    if (!idle_.empty()) {
      auto handle = std::move(idle_.back());
      idle_.pop_back();
      return handle;
    }
  }
  return std::make_unique<Handle>(address_);
}

void Http::put_back(std::unique_ptr<Handle> handle) {
  const std::scoped_lock lock{mutex_};
  idle_.push_back(std::move(handle));
}

Http::Reply Http::post(const Request& request) {
  auto handle = take();
  auto reply = handle->post(request);
  put_back(std::move(handle));
  return reply;
}

void Http::post(std::span<const Request> requests, const Hedged& hedged) {
  std::unique_ptr<Hedge> hedge;
  {
    const std::scoped_lock lock{mutex_};
    if (!idle_hedges_.empty()) {
      hedge = std::move(idle_hedges_.back());
      idle_hedges_.pop_back();
    }
  }
  if (!hedge) hedge = std::make_unique<Hedge>();
  hedge->post(address_, requests, hedged);
  const std::scoped_lock lock{mutex_};
  idle_hedges_.push_back(std::move(hedge));
}

Http::Reply Http::follow(const Request& request, const Following& following) {
  Handle handle{address_};
  return handle.follow(request, following);
}

}  // namespace fenceguard::etcd
