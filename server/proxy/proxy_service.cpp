#include "server/proxy/proxy_service.hpp"

#include <algorithm>
#include <atomic>
#include <future>
#include <mutex>
#include <unordered_map>

#include "server/data/problem.hpp"
#include "server/http/server.hpp"
#include "server/proxy/fast/fast_path.hpp"
#include "server/proxy/proxied_request.hpp"

namespace fenceguard::proxy {

// What the connections of one loop share.
struct PerLoop {
  PerLoop(const ServiceContext& context, LaneScheduler& lanes, const UpstreamOptions& options,
          net::Loop& loop)
      : pool{options, loop.shared_from_this()}, fast{context, lanes, pool} {}

  UpstreamPool pool;
  FastPath fast;
};

namespace {

// Which service a thread's share belongs to: a service has its threads alone, but another may follow at its
// address.
std::atomic<std::uint64_t> services{0};

struct OfThread {
  std::uint64_t service = 0;
  PerLoop* shared = nullptr;
};
thread_local OfThread of_thread;

}  // namespace

class ProxyService::Impl : public http::StreamHandler {
 public:
  Impl(const ServiceContext& context, LaneScheduler& lanes, UpstreamOptions options)
      : context_{context}, lanes_{lanes}, options_{std::move(options)}, server_{context.threads} {}

  std::string listen(const std::string& address) {
    return server_.listen(address, *this, context_.limits, context_.tls);
  }

  bool drain(std::chrono::milliseconds timeout) {
    {
      const std::lock_guard lock{mutex_};
      cut_at_ = std::chrono::steady_clock::now() + timeout;
      for (const auto& [loop, shared] : loops_) shared->pool.cut_at(cut_at_);
    }
    return server_.drain(timeout);
  }

  bool reload_upstream_certificates() {
    if (options_.tls) options_.tls->reload();
    return options_.tls != nullptr;
  }

  bool reset_writes(std::string_view resource, std::int64_t token_max, std::chrono::milliseconds limit) {
    std::vector<std::future<void>> ends;
    {
      const std::lock_guard lock{mutex_};
      for (const auto& [loop, shared] : loops_) {
        auto end = std::make_shared<std::promise<void>>();
        ends.push_back(end->get_future());
        loop->post([pool = &shared->pool, resource = std::string{resource}, token_max, end] {
          pool->reset_writes(resource, token_max);
          end->set_value();
        });
      }
    }
    const auto deadline = std::chrono::steady_clock::now() + limit;
    return std::ranges::all_of(
        ends, [&](const auto& end) { return end.wait_until(deadline) == std::future_status::ready; });
  }

  [[nodiscard]] bool answers(std::chrono::milliseconds limit) { return server_.answers(limit); }
  [[nodiscard]] std::int64_t in_flight() const noexcept { return server_.in_flight(); }
  [[nodiscard]] LaneScheduler& lanes() const noexcept { return lanes_; }

  net::Task<void> serve(http::Stream& stream) override {
    if (context_.hosts != nullptr) {
      auto refused = context_.hosts->refuse_host(stream.request());
      if (refused) {
        co_await stream.respond(std::move(*refused));
        co_return;
      }
    }
    // Not in the coroutine's frame, which is dear where it is large.
    const auto flow =
        std::make_unique<ProxiedRequest>(context_, lanes_, share_of(stream.loop()).pool, stream);
    if (const auto begun = stream.take_begun()) {
      flow->adopt(static_cast<FastRequest&>(*begun).take());
    } else {
      parsed_.fetch_add(1, std::memory_order_relaxed);
    }
    co_await flow->run();
  }

  [[nodiscard]] bool has_fast_path() const noexcept override {
    return context_.has_fast_path && !options_.tls;
  }

  http::FastExchangePtr begin(const http::PlainRequest& request, http::FastClient& client) override {
    return share_of(client.loop()).fast.begin(request, client);
  }

  [[nodiscard]] std::uint64_t served_fast() {
    const std::lock_guard lock{mutex_};
    std::uint64_t sum = 0;
    for (const auto& [loop, shared] : loops_) sum += shared->fast.served();
    return sum;
  }

  [[nodiscard]] std::uint64_t parsed() {
    const std::lock_guard lock{mutex_};
    std::uint64_t sum = parsed_.load(std::memory_order_relaxed);
    for (const auto& [loop, shared] : loops_) sum += shared->fast.parsed();
    return sum;
  }

  http::Response refuse(unsigned status, std::string_view why) override {
    return refuse_request(status, why);
  }

 private:
  PerLoop& share_of(net::Loop& loop) {
    auto& mine = of_thread;
    if (mine.service == number_) return *mine.shared;
    const std::lock_guard lock{mutex_};
    auto& shared = loops_[&loop];
    if (!shared) {
      shared = std::make_unique<PerLoop>(context_, lanes_, options_, loop);
      if (cut_at_ != net::SteadyTime::max()) shared->pool.cut_at(cut_at_);
    }
    mine = {number_, shared.get()};
    return *shared;
  }

  const ServiceContext context_;
  LaneScheduler& lanes_;
  const UpstreamOptions options_;
  const std::uint64_t number_ = ++services;
  std::atomic<std::uint64_t> parsed_{0};  // by coroutines
  std::mutex mutex_;                      // guards the next two
  net::SteadyTime cut_at_ = net::SteadyTime::max();
  // They outlive the server, whose loops they keep.
  std::unordered_map<net::Loop*, std::unique_ptr<PerLoop>> loops_;
  http::Server server_;
};

ProxyService::ProxyService(const ServiceContext& context, LaneScheduler& lanes, UpstreamOptions options)
    : impl_{std::make_unique<Impl>(context, lanes, std::move(options))} {
  lanes.watch_raises([&log = context.log](const Claim& claim) { log.taken_over(claim); });
}

ProxyService::~ProxyService() {
  impl_->drain(std::chrono::milliseconds{0});
  impl_->lanes().watch_raises(nullptr);
}

std::string ProxyService::listen(const std::string& address) {
  return impl_->listen(address);
}

bool ProxyService::drain(std::chrono::milliseconds timeout) {
  return impl_->drain(timeout);
}

bool ProxyService::reload_upstream_certificates() {
  return impl_->reload_upstream_certificates();
}

bool ProxyService::reset_writes(std::string_view resource, std::int64_t token_max,
                                std::chrono::milliseconds limit) {
  return impl_->reset_writes(resource, token_max, limit);
}

bool ProxyService::answers(std::chrono::milliseconds limit) {
  return impl_->answers(limit);
}

std::int64_t ProxyService::in_flight() const noexcept {
  return impl_->in_flight();
}

std::uint64_t ProxyService::served_fast() const {
  return impl_->served_fast();
}

std::uint64_t ProxyService::parsed() const {
  return impl_->parsed();
}

std::optional<Fault> ProxyService::quarantine(std::string_view resource) const {
  return impl_->lanes().quarantine(resource);
}

DataService::LaneFigures ProxyService::lanes() const {
  const auto figures = impl_->lanes().figures();
  return {static_cast<std::int64_t>(figures.waiting), static_cast<std::int64_t>(figures.in_flight),
          static_cast<std::int64_t>(figures.closed), static_cast<std::int64_t>(figures.settle_closures),
          static_cast<std::int64_t>(figures.cuts_owed)};
}

DataService::LanePage ProxyService::list_lanes(const FenceListing& listing, Lanes which) const {
  auto one_more = listing;
  ++one_more.limit;
  const bool is_all = which == Lanes::all;
  auto views =
      impl_->lanes().list_lanes(one_more, is_all ? LaneTable::Which::all : LaneTable::Which::quarantined);
  LanePage page{{}, views.size() > listing.limit};
  if (page.has_more) views.pop_back();
  for (auto& view : views) {
    page.entries.push_back({std::move(view.resource), static_cast<std::int64_t>(view.waiting),
                            static_cast<std::int64_t>(view.in_flight), view.quarantined});
  }
  return page;
}

}  // namespace fenceguard::proxy
