#include "server/proxy/storage.hpp"

#include "guard/error.hpp"
#include "guard/store/completion_on_thread.hpp"
#include "server/data/data_service.hpp"
#include "server/lane/lane_scheduler.hpp"
#include "server/proxy/proxy_service.hpp"
#include "server/proxy/upstream/upstream_options.hpp"

namespace fenceguard::proxy {
namespace {

LaneOptions with_upstream(LaneOptions options, const Url& url) {
  options.upstream = url.redacted();
  return options;
}

class HttpStorage : public Storage, public ServedStorage {
 public:
  HttpStorage(const Url& url, const StorageOptions& options)
      : upstream_{UpstreamOptions::from(url, options.lane)},
        state_{options.lane.state},
        lanes_{with_upstream(options.lane, url), options.jump_max, options.cache_entries} {}

  FenceStore& fences() override { return answered_; }
  DepthRecord* depth_record() override { return state_->depth_record(); }
  TokenSource* own_source() override { return state_->own_source(); }
  std::shared_ptr<DataService> data_service(const ServiceContext& context) override {
    return std::make_shared<ProxyService>(context, lanes_, upstream_);
  }
  void cut_off_by(HolderFencer& fencer) override { lanes_.cut_off_by(fencer); }
  void cut_off_none() override { lanes_.cut_off_none(); }
  void finish(Claim claim, Done<bool> done) override { lanes_.finish(std::move(claim), std::move(done)); }

 private:
  CompletionOnThread answered_;  // first, so that it ends last
  const UpstreamOptions upstream_;
  const std::shared_ptr<Storage> state_;
  LaneScheduler lanes_;
  CompletionOnThread::Access access_{answered_, lanes_};
};

}  // namespace

std::unique_ptr<Storage> open_storage(const Url& url, const StorageOptions& options) {
  if (options.lane.state == nullptr) {
    throw InvalidInput(
        "the fences of an http: storage are kept by the guard in front of it; reach that one by --server "
        "http://HOST:PORT");
  }
  if (options.lane.state->lane_state() == nullptr) {
    throw InvalidInput("--state: only a file can be locked for as long as a process lives; use sqlite:PATH");
  }
  return std::make_unique<HttpStorage>(url, options);
}

}  // namespace fenceguard::proxy
