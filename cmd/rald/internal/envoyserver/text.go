package envoyserver

import (
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

// withText returns a message with every text escaped, and leaves the rest as it is.
func withText(wire []byte, of protoreflect.MessageDescriptor) (all []byte) {
	for len(wire) > 0 {
		number, kind, length := protowire.ConsumeField(wire)
		if length < 0 {
			return append(all, wire...) // proto.Unmarshal names the fault
		}
		field := of.Fields().ByNumber(number)
		if kind != protowire.BytesType || field == nil {
			all, wire = append(all, wire[:length]...), wire[length:]
			continue
		}
		_, _, tag := protowire.ConsumeTag(wire)
		value, _ := protowire.ConsumeBytes(wire[tag:length])
		switch field.Kind() {
		case protoreflect.StringKind:
			value = escaped(value)
		case protoreflect.MessageKind:
			value = withText(value, field.Message())
		}
		all = protowire.AppendBytes(append(all, wire[:tag]...), value)
		wire = wire[length:]
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
