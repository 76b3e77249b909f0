#include "server/proxy/proxy_service.hpp"

#include <atomic>
#include <mutex>
#include <unordered_map>

#include "server/data/problem.hpp"
#include "server/http/server.hpp"
#include "server/proxy/proxied_request.hpp"

namespace fenceguard::proxy {
namespace {

// Which service a thread's pool belongs to: a service has its threads alone, but another may follow at its
// address.
std::atomic<std::uint64_t> services{0};

struct ThreadPool {
  std::uint64_t service = 0;
  UpstreamPool* pool = nullptr;
};
thread_local ThreadPool pool_of_thread;

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
      for (const auto& [loop, pool] : pools_) pool->cut_at(cut_at_);
    }
    return server_.drain(timeout);
  }

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
    const auto flow = std::make_unique<ProxiedRequest>(context_, lanes_, pool_for(stream.loop()), stream);
    co_await flow->run();
  }

  http::Response refuse(unsigned status, std::string_view why) override {
    return refuse_request(status, why);
  }

 private:
  UpstreamPool& pool_for(net::Loop& loop) {
    auto& mine = pool_of_thread;
    if (mine.service == number_) return *mine.pool;
    const std::lock_guard lock{mutex_};
    auto& pool = pools_[&loop];
    if (!pool) {
      pool = std::make_unique<UpstreamPool>(options_, loop.shared_from_this());
      if (cut_at_ != net::SteadyTime::max()) pool->cut_at(cut_at_);
    }
    mine = {number_, pool.get()};
    return *pool;
  }

  const ServiceContext context_;
  LaneScheduler& lanes_;
  const UpstreamOptions options_;
  const std::uint64_t number_ = ++services;
  std::mutex mutex_;  // guards the next two
  net::SteadyTime cut_at_ = net::SteadyTime::max();
  // They outlive the server, whose loops they keep.
  std::unordered_map<net::Loop*, std::unique_ptr<UpstreamPool>> pools_;
  http::Server server_;
};

ProxyService::ProxyService(const ServiceContext& context, LaneScheduler& lanes, UpstreamOptions options)
    : impl_{std::make_unique<Impl>(context, lanes, std::move(options))} {}

ProxyService::~ProxyService() {
  impl_->drain(std::chrono::milliseconds{0});
}

std::string ProxyService::listen(const std::string& address) {
  return impl_->listen(address);
}

bool ProxyService::drain(std::chrono::milliseconds timeout) {
  return impl_->drain(timeout);
}

std::int64_t ProxyService::in_flight() const noexcept {
  return impl_->in_flight();
}

std::optional<Fault> ProxyService::quarantine(std::string_view resource) const {
  return impl_->lanes().quarantine(resource);
}

DataService::LaneFigures ProxyService::lanes() const {
  const auto figures = impl_->lanes().figures();
  return {static_cast<std::int64_t>(figures.waiting), static_cast<std::int64_t>(figures.in_flight),
          static_cast<std::int64_t>(figures.closed), static_cast<std::int64_t>(figures.settle_closures)};
}

}  // namespace fenceguard::proxy
