package envoyserver

import (
	"iter"
	"unicode/utf8"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
)

// unmarshal reads a message, also with texts that are no UTF-8, which package proto refuses.
func unmarshal(wire []byte, into proto.Message) error {
	if proto.Unmarshal(wire, into) == nil {
		return nil
	}
	if err := proto.Unmarshal(withText(wire, into.ProtoReflect().Descriptor()), into); err != nil {
		return status.Errorf(codes.InvalidArgument, "the request could not be read: %v", err)
	}
	return nil
}

// field is a field of a message. value is nil unless it has a length, and tag is what comes before.
type field struct {
	number            protowire.Number
	whole, tag, value []byte
}

// fields iterates over the fields of a message, until one that cannot be read: the last then has the
// whole rest.
func fields(message []byte) iter.Seq[field] {
	return func(yield func(field) bool) {
		for len(message) > 0 {
			number, kind, length := protowire.ConsumeField(message)
			if length < 0 {
				// proto.Unmarshal names the fault.
				yield(field{whole: message})
				return
			}
			f := field{number: number, whole: message[:length]}
			if kind == protowire.BytesType {
				_, _, tag := protowire.ConsumeTag(message)
				f.tag = message[:tag]
				f.value, _ = protowire.ConsumeBytes(message[tag:length])
			}
			if message = message[length:]; !yield(f) {
				return
			}
		}
	}
}

// withText returns a message with every text escaped, and leaves the rest as it is.
func withText(wire []byte, message protoreflect.MessageDescriptor) (all []byte) {
	for field := range fields(wire) {
		known := message.Fields().ByNumber(field.number)
		if field.value == nil || known == nil {
			all = append(all, field.whole...)
			continue
		}
		switch known.Kind() {
		case protoreflect.StringKind:
			field.value = escaped(field.value)
		case protoreflect.MessageKind:
			field.value = withText(field.value, known.Message())
		}
		all = protowire.AppendBytes(append(all, field.tag...), field.value)
	}
	return all
}

// escapes is the character for byte 0 of a text that is no UTF-8: the first of Unicode's last 256,
// which have no meaning of their own.
const escapes = 0x10ff00

// escaped returns a text with a character for each byte that is no UTF-8. So different texts stay
// different, and wildcards match them.
func escaped(text []byte) (all []byte) {
	if utf8.Valid(text) {
		return text
	}
	for len(text) > 0 {
		char, size := utf8.DecodeRune(text)
		if char == utf8.RuneError && size == 1 {
			char = escapes + rune(text[0])
		}
		all, text = utf8.AppendRune(all, char), text[size:]
	}
	return all
}
