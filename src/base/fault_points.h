// The stages of a transfer, by name: tests stop or kill a process when it gets to one (EventLoop::reach).
#pragma once

#include <string_view>

namespace stagewire::fault_point {

// Of the node that dials.
inline constexpr std::string_view kDialled = "dialled";       ///< connected; nothing said yet
inline constexpr std::string_view kProofSent = "proof_sent";  ///< authenticated to the other; no welcome yet
inline constexpr std::string_view kGreeted = "greeted";       ///< has the other's welcome; its own unsent

// Of the node that is dialled.
inline constexpr std::string_view kHelloReceived = "hello_received";  ///< a hello, not answered yet
inline constexpr std::string_view kProofReceived = "proof_received";  ///< a proof, not checked yet
inline constexpr std::string_view kDataOpened = "data_opened";        ///< a data connection, not adopted yet

// Of either.
inline constexpr std::string_view kSessionUp = "session_up";  ///< nobody told of the session yet
inline constexpr std::string_view kTransportMessage = "transport_message";  ///< one of a transport, unread

// Of the sender.
inline constexpr std::string_view kClaimReceived = "claim_received";        ///< not decided yet
inline constexpr std::string_view kLeaseMade = "lease_made";                ///< its grant not sent yet
inline constexpr std::string_view kConsumedReceived = "consumed_received";  ///< neither taken in nor settled

// Of the reader.
inline constexpr std::string_view kClaimSent = "claim_sent";          ///< handed to the session
inline constexpr std::string_view kGrantReceived = "grant_received";  ///< no byte read yet
inline constexpr std::string_view kReadStarted = "read_started";      ///< handed to the transport
inline constexpr std::string_view kReadDone = "read_done";            ///< the last byte is there; nobody told
inline constexpr std::string_view kSettledReceived = "settled_received";  ///< the claim not forgotten yet
inline constexpr std::string_view kViewReleased = "view_released";        ///< the sender not told yet

}  // namespace stagewire::fault_point
