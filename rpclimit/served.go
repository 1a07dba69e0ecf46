package rpclimit

import "strconv"

// Served describes how a call ended, for Charge. An adapter sets Code and Panicked.
type Served struct {
	Code Code
	// Received and Sent count the messages of a stream that passed Session.Received and
	// Session.Sent. Otherwise both are 1, but Sent is 0 unless the Code is CodeOK. End sets both.
	Received, Sent int64
	Panicked       bool
}

// Code is a status of gRPC and of Connect, with the same numbers.
type Code uint32

// The codes of verdicts. Handlers return others too: convert such a code, as in
// rpclimit.Code(codes.Unauthenticated). Connect has no CodeOK.
const (
	CodeOK                Code = 0
	CodeCanceled          Code = 1
	CodeInvalidArgument   Code = 3
	CodeDeadlineExceeded  Code = 4
	CodeResourceExhausted Code = 8
	CodeInternal          Code = 13
	CodeUnavailable       Code = 14

	codes = 17
)

// String returns the name of the code as Connect writes it, such as "resource_exhausted".
func (c Code) String() string {
	if uint64(c) >= uint64(codes) {
		return "code_" + strconv.FormatUint(uint64(c), 10)
	}
	return [codes]string{
		"ok", "canceled", "unknown", "invalid_argument", "deadline_exceeded", "not_found", "already_exists",
		"permission_denied", "resource_exhausted", "failed_precondition", "aborted", "out_of_range", "unimplemented",
		"internal", "unavailable", "data_loss", "unauthenticated",
	}[c]
}
