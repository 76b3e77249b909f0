// Refusals in the log: one line a second per resource, in one shape, without a holder.

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <spdlog/sinks/ostream_sink.h>
#include <spdlog/spdlog.h>
#include <unistd.h>

#include <ctime>
#include <sstream>
#include <vector>

#include "server/control/metrics.hpp"
#include "server/control/refusal_log.hpp"
#include "server/data/trace_id.hpp"

namespace fenceguard {
namespace {

using namespace std::chrono_literals;
using testing::HasSubstr;
using testing::Not;

// Catches what goes to the default logger.
class CaughtLog {
 public:
  CaughtLog() : before_{spdlog::default_logger()} {
    auto sink = std::make_shared<spdlog::sinks::ostream_sink_mt>(text_);
    spdlog::set_default_logger(std::make_shared<spdlog::logger>("test", sink));
    spdlog::set_pattern("%l %v");
  }
  ~CaughtLog() { spdlog::set_default_logger(before_); }
  CaughtLog(const CaughtLog&) = delete;
  CaughtLog& operator=(const CaughtLog&) = delete;
  [[nodiscard]] std::string text() const { return text_.str(); }

 private:
  std::shared_ptr<spdlog::logger> before_;
  std::ostringstream text_;
};

const Claim claim{Resource{"acc\"ounts/42"}, Token{34}, Holder{"asker"}, {}};

Ruling ruling(Verdict verdict) {
  return {verdict, 35, Fence{Token{35}, Holder{"present"}, {}}, false};
}

TEST(RefusalLog, OneLineASecondPerResourceAndTheRestIsCounted) {
  RefusalLog log;
  const BootClock::time_point now{5s};
  EXPECT_TRUE(log.take("a", now).granted);
  for (int i = 0; i < 10; ++i) EXPECT_FALSE(log.take("a", now).granted);
  EXPECT_TRUE(log.take("b", now).granted);
  const auto next = log.take("a", now + 1s);
  EXPECT_TRUE(next.granted);
  EXPECT_EQ(next.suppressed, 10U);
  EXPECT_EQ(log.take("a", now + 1s).suppressed, 0U);
}

TEST(RefusalLog, ARefusalIsALineOfKeysAndValuesWithoutHolders) {
  const CaughtLog caught;
  RefusalLog log;
  log.ruled("write", claim, ruling(Verdict::stale), "192.0.2.7");
  EXPECT_THAT(caught.text(),
              HasSubstr("info event=\"refused\" operation=write verdict=stale "
                        "resource=\"acc\\\"ounts/42\" token=34 highest=35 client=192.0.2.7 suppressed=0"));
  EXPECT_THAT(caught.text(), Not(HasSubstr("asker")));
  EXPECT_THAT(caught.text(), Not(HasSubstr("present")));
}

TEST(RefusalLog, AConflictIsAWarningThatTheSourceIssuedANumberTwice) {
  const CaughtLog caught;
  RefusalLog log;
  log.ruled("write", claim, ruling(Verdict::conflict), "192.0.2.7");
  EXPECT_THAT(caught.text(), HasSubstr("warning event=\"source issued one number twice\""));
}

TEST(RefusalLog, ARefusalOfATracedRequestTellsItsTrace) {
  const CaughtLog caught;
  RefusalLog log;
  http::Fields fields;
  fields.add("Traceparent", "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01");
  log.ruled("write", claim, ruling(Verdict::stale), {"192.0.2.7", fields});
  EXPECT_THAT(caught.text(),
              HasSubstr("client=192.0.2.7 suppressed=0 trace_id=4bf92f3577b34da6a3ce929d0e0e4736\n"));
}

TEST(RefusalLog, AMalformedTraceIsNotTold) {
  const CaughtLog caught;
  RefusalLog log;
  http::Fields fields;
  fields.add("traceparent", "x trace_id=y");
  log.ruled("write", claim, ruling(Verdict::stale), {"192.0.2.7", fields});
  EXPECT_THAT(caught.text(), HasSubstr("suppressed=0\n"));
}

std::string_view trace_of(const std::string& value) {
  static http::Fields fields;
  fields = {};
  fields.add("traceparent", value);
  return trace_id_of(fields);
}

TEST(TraceId, IsThatOfAWellFormedFieldAlone) {
  const std::string trace = "4bf92f3577b34da6a3ce929d0e0e4736";
  const std::string rest = "-00f067aa0ba902b7-01";
  EXPECT_EQ(trace_of("00-" + trace + rest), trace);
  EXPECT_EQ(trace_of("cc-" + trace + rest), trace) << "a later version";
  EXPECT_EQ(trace_of("cc-" + trace + rest + "-more"), trace) << "likewise";
  for (const auto& wrong :
       {std::string{}, trace, "00-" + trace, "00-" + trace + rest + "-more", "cc-" + trace + rest + ".more",
        "ff-" + trace + rest, "0g-" + trace + rest, "00_" + trace + rest,
        "00-" + trace + "_00f067aa0ba902b7-01", "00-" + trace + "-00f067aa0ba902b7_01",
        "00-" + trace + "-00f067aa0ba902b7-0G", "00-" + trace + "-0000000000000000-01",
        "00-" + std::string(32, '0') + rest, "00-4BF92F3577B34DA6A3CE929D0E0E4736" + rest,
        "00-4bf92f3577b34da6\\3ce929d0e0e4736" + rest, " 00-" + trace + rest}) {
    EXPECT_EQ(trace_of(wrong), "") << wrong;
  }
  http::Fields two;
  for (int i = 0; i < 2; ++i) two.add("traceparent", "00-" + trace + rest);
  EXPECT_EQ(trace_id_of(two), "") << "which of both?";
}

TEST(RefusalLog, AdmissionsAreForDebugOnly) {
  const CaughtLog caught;
  RefusalLog log;
  log.ruled("write", claim, ruling(Verdict::admitted), "192.0.2.7");
  EXPECT_EQ(caught.text(), "");
  spdlog::set_level(spdlog::level::debug);
  log.ruled("write", claim, ruling(Verdict::admitted), "192.0.2.7");
  EXPECT_THAT(caught.text(), HasSubstr("debug event=\"ruled\""));
}

TEST(Metrics, HaveTheNamesOfTheDesign) {
  Metrics metrics{"sqlite"};
  metrics.count(Verdict::conflict);
  metrics.count(FaultKind::unknown);
  metrics.count(LeaseEvent::acquired);
  metrics.observe_write(3ms);
  StoreStatus status;
  status.floor = 12;
  status.resources = 3;
  metrics.set_ready(true);
  const auto text = metrics.render(status, 2);
  for (const char* line :
       {"fenceguard_verdicts_total{storage=\"sqlite\",verdict=\"conflict\"} 1",
        "fenceguard_verdicts_total{storage=\"sqlite\",verdict=\"unknown\"} 1",
        "fenceguard_verdicts_total{storage=\"sqlite\",verdict=\"admitted\"} 0",
        "fenceguard_leases_total{event=\"acquired\"} 1", "fenceguard_token_conflicts_total 1",
        "fenceguard_unknown_total 1", "fenceguard_in_flight 2", "fenceguard_resources 3",
        "fenceguard_floor 12", "fenceguard_advances_total 0", "fenceguard_source_regressions_total 0",
        "fenceguard_write_duration_seconds_count 1", "fenceguard_ready 1", "fenceguard_build_info{"}) {
    EXPECT_THAT(text, HasSubstr(line));
  }
}

// The value of a metric without labels.
double value_of(const std::string& text, const std::string& name) {
  const auto at = text.find("\n" + name + " ");
  EXPECT_NE(at, std::string::npos) << name << "\n" << text;
  return at == std::string::npos ? -1 : std::stod(text.substr(at + name.size() + 2));
}

TEST(Metrics, TellTheProcessAsPrometheusClientsDo) {
  const auto before = Metrics::render_standby();
  const auto now = static_cast<double>(std::time(nullptr));
  const int opened = ::open("/dev/null", O_RDONLY | O_CLOEXEC);
  std::vector<char> memory(64 << 20, 'x');
  const auto begun = std::clock();
  while (std::clock() - begun < CLOCKS_PER_SEC / 100) {
  }
  const auto after = Metrics::render_standby();
  ::close(opened);
  const auto rise = [&](const char* name) { return value_of(after, name) - value_of(before, name); };
  EXPECT_EQ(rise("process_open_fds"), 1);
  EXPECT_GE(rise("process_resident_memory_bytes"), static_cast<double>(memory.size() / 2));
  EXPECT_GT(rise("process_cpu_seconds_total"), 0);
  EXPECT_EQ(rise("process_start_time_seconds"), 0);
  EXPECT_LE(value_of(after, "process_start_time_seconds"), now + 2);
  EXPECT_GE(value_of(after, "process_start_time_seconds"), now - 3600);
  EXPECT_GE(value_of(after, "process_max_fds"), value_of(after, "process_open_fds"));
}

TEST(Metrics, OfAStandbyAreThatItIsThereAndNotReady) {
  const auto text = Metrics::render_standby();
  EXPECT_EQ(value_of(text, "fenceguard_ready"), 0);
  EXPECT_THAT(text, HasSubstr("fenceguard_build_info{"));
  EXPECT_THAT(text, Not(HasSubstr("fenceguard_verdicts_total")));
}

}  // namespace
}  // namespace fenceguard
