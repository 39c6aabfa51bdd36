// What completion statuses and errno values are turned into. Pure functions.
#include "transport/verbs/verbs_error.h"

#include <cerrno>
#include <gtest/gtest.h>
#include <set>
#include <string>
#include <sys/resource.h>

namespace stagewire::testing_support {
namespace {

Error error_of(ibv_wc_status status) {
  ibv_wc completion{};
  completion.status = status;
  completion.vendor_err = 136;
  return completion_error(completion);
}

TEST(VerbsError, EveryStatusThatOperatorsMeetHasItsOwnNameAndText) {
  std::set<std::string_view> names;
  std::set<std::string> texts;
  for (const ibv_wc_status status :
       {IBV_WC_LOC_LEN_ERR, IBV_WC_LOC_QP_OP_ERR, IBV_WC_LOC_PROT_ERR, IBV_WC_WR_FLUSH_ERR,
        IBV_WC_REM_INV_REQ_ERR, IBV_WC_REM_ACCESS_ERR, IBV_WC_REM_OP_ERR, IBV_WC_RETRY_EXC_ERR,
        IBV_WC_RNR_RETRY_EXC_ERR, IBV_WC_RESP_TIMEOUT_ERR, IBV_WC_FATAL_ERR, IBV_WC_GENERAL_ERR}) {
    EXPECT_TRUE(names.insert(status_name(status)).second) << status;
    const Error error = error_of(status);
    EXPECT_TRUE(texts.insert(error.message()).second) << status;
    EXPECT_EQ(error.transport(), "verbs");
    EXPECT_NE(error.message().find("vendor error 136"), std::string::npos);
    EXPECT_NE(error.message().find("status " + std::to_string(static_cast<int>(status))), std::string::npos);
  }
  EXPECT_EQ(error_of(IBV_WC_RETRY_EXC_ERR).kind(), ErrorKind::peer_lost);
  EXPECT_EQ(error_of(IBV_WC_REM_ACCESS_ERR).kind(), ErrorKind::lease_lost);
}

TEST(VerbsError, SaysWhoseFaultItIs) {
  EXPECT_EQ(blame_of(IBV_WC_REM_ACCESS_ERR), Blame::read);
  EXPECT_EQ(blame_of(IBV_WC_LOC_PROT_ERR), Blame::read);
  EXPECT_EQ(blame_of(IBV_WC_RETRY_EXC_ERR), Blame::connection);
  EXPECT_EQ(blame_of(IBV_WC_FATAL_ERR), Blame::connection);
  EXPECT_EQ(blame_of(IBV_WC_WR_FLUSH_ERR), Blame::nobody);
}

TEST(VerbsError, ARegistrationThatDoesNotFitNamesTheLimitAndTheCommand) {
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_MEMLOCK, &before), 0);
  rlimit small = before;
  small.rlim_cur = 65536;
  ASSERT_EQ(::setrlimit(RLIMIT_MEMLOCK, &small), 0);
  const Error limited = registration_error(ENOMEM, 1ULL << 30U, "publish pool");
  ASSERT_EQ(::setrlimit(RLIMIT_MEMLOCK, &before), 0);
  for (const char* part : {"1 GiB", "publish pool", "64 KiB", "RLIMIT_MEMLOCK", "ulimit -l unlimited"})
    EXPECT_NE(limited.message().find(part), std::string::npos) << part << ": " << limited;
  const Error denied = registration_error(EPERM, 4096, "publish pool");
  EXPECT_NE(denied.message().find("IPC_LOCK"), std::string::npos) << denied;
  EXPECT_EQ(denied.kind(), ErrorKind::io);
}

TEST(VerbsError, QueuePairCallsSayWhereToLook) {
  EXPECT_NE(call_error(ETIMEDOUT, "ibv_modify_qp").message().find("ip neigh"), std::string::npos);
  EXPECT_NE(call_error(ENOMEM, "ibv_create_qp").message().find("rdma resource show qp"), std::string::npos);
}

}  // namespace
}  // namespace stagewire::testing_support
