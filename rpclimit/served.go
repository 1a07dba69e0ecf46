package rpclimit

import "strconv"

// Served describes how a call ended, for Charge. An adapter sets Code and Panicked.
type Served struct {
	// Code is the status that the handler returned.
	Code Code
	// Received and Sent are the messages of a stream that were announced by Session.Received
	// and Session.Sent, without those that were refused. Of a call that is no stream they are 1,
	// except that none is Sent unless the Code is CodeOK. End sets them.
	Received, Sent int64
	// Panicked reports whether the handler panicked.
	Panicked bool
}

// Code is a status of gRPC and of Connect, with the same numbers.
type Code uint32

// The codes of gRPC. Connect has the same, except CodeOK.
const (
	CodeOK Code = iota
	CodeCanceled
	CodeUnknown
	CodeInvalidArgument
	CodeDeadlineExceeded
	CodeNotFound
	CodeAlreadyExists
	CodePermissionDenied
	CodeResourceExhausted
	CodeFailedPrecondition
	CodeAborted
	CodeOutOfRange
	CodeUnimplemented
	CodeInternal
	CodeUnavailable
	CodeDataLoss
	CodeUnauthenticated

	codes = int(CodeUnauthenticated) + 1
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
