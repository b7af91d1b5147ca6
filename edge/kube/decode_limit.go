package kube

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"reflect"

	"google.golang.org/protobuf/encoding/protowire"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/islet-edge/islet/internal/inputweight"
)

// limitedSerializer is the client's NegotiatedSerializer. It supports only protobuf and JSON, and limits the memory of decoded objects. Its
// decoders reject an object that would use more than maxDecoded bytes.
type limitedSerializer struct {
	runtime.NegotiatedSerializer
	scheme *runtime.Scheme
}

// SupportedMediaTypes omits YAML. The client never requests YAML, but a server could send it.
func (w limitedSerializer) SupportedMediaTypes() (some []runtime.SerializerInfo) {
	for _, t := range w.NegotiatedSerializer.SupportedMediaTypes() {
		if t.MediaType == protobuf || t.MediaType == asJSON {
			some = append(some, t)
		}
	}
	return some
}

// DecoderToVersion returns a decoder that estimates the memory of an object before decoding it.
func (w limitedSerializer) DecoderToVersion(d runtime.Decoder, gv runtime.GroupVersioner) runtime.Decoder {
	return scales{w.NegotiatedSerializer.DecoderToVersion(d, gv), w.scheme}
}

type scales struct {
	runtime.Decoder
	scheme *runtime.Scheme
}

// Decode decodes an object. If the object would need too much memory, Decode reduces it (see reduce.go), or returns
// inputweight.ErrTooHeavy if it cannot reduce it. It returns inputweight.ErrTooDeep if the object is nested too deeply.
func (s scales) Decode(
	data []byte, defaults *schema.GroupVersionKind, into runtime.Object,
) (runtime.Object, *schema.GroupVersionKind, error) {
	isProtobuf, parts, kind := false, [][]byte{data}, schema.GroupVersionKind{}
	if message, ok := bytes.CutPrefix(data, protobufPrefix); ok {
		isProtobuf = true
		var err error
		if kind, parts, err = parseEnvelope(message); err != nil {
			return nil, nil, err
		}
	} else {
		var head struct{ APIVersion, Kind string }
		_ = json.Unmarshal(data, &head) // an error is reported by the decoder
		kind = schema.FromAPIVersionAndKind(head.APIVersion, head.Kind)
	}
	switch {
	case (kind.Kind == "") != (kind.Version == ""):
		// One of apiVersion and kind is missing. The decoder would set it from the defaults, and the result could have a kind for which the
		// memory was not estimated.
		return nil, nil, errors.New("the server's answer has only one of apiVersion and kind")
	case kind.Empty() && defaults != nil:
		kind = *defaults
	}
	err := s.weigh(isProtobuf, parts, kind, into)
	if isTooHeavy(err) {
		if isProtobuf {
			data, parts = reduceEnvelope(kind, parts)
		} else {
			data = reduceJSON(kind, data)
			parts = [][]byte{data}
		}
		if data != nil {
			err = s.weigh(isProtobuf, parts, kind, into)
		}
	}
	if err != nil {
		return nil, nil, err
	}
	return s.Decoder.Decode(data, defaults, into)
}

// weigh returns an error if the parts of an encoded object would need too much memory.
func (s scales) weigh(isProtobuf bool, parts [][]byte, kind schema.GroupVersionKind, into runtime.Object) error {
	weigh := inputweight.JSON
	if isProtobuf {
		weigh = inputweight.Protobuf
	}
	targets := []runtime.Object{into}
	// If the data contains another kind than the requested one, the decoder creates an object of the other kind.
	if o, err := s.scheme.New(kind); err == nil && reflect.TypeOf(o) != reflect.TypeOf(into) {
		targets = append(targets, o)
	}
	for _, target := range targets {
		for _, part := range parts {
			if target == nil {
				continue
			}
			if err := weigh(part, target, maxDecoded); err != nil {
				return err
			}
		}
	}
	return nil
}

// protobufPrefix begins every object in protobuf. A runtime.Unknown follows.
var protobufPrefix = []byte("k8s\x00")

// parseEnvelope parses a runtime.Unknown without copying it. It returns the kind and the bytes of the object.
func parseEnvelope(message []byte) (kind schema.GroupVersionKind, objects [][]byte, err error) {
	var apiVersion, name string
	var inner error
	err = visitFields(message, func(n protowire.Number, value []byte) {
		switch n {
		case 1:
			inner = visitFields(value, func(n protowire.Number, value []byte) {
				switch n {
				case 1:
					apiVersion = string(value)
				case 2:
					name = string(value)
				}
			})
		case 2:
			objects = [][]byte{value} // the decoder uses the last one
		}
	})
	return schema.FromAPIVersionAndKind(apiVersion, name), objects, cmp.Or(err, inner)
}

// visitFields calls f for each length-delimited field of a message.
func visitFields(message []byte, f func(n protowire.Number, value []byte)) error {
	return visitAllFields(message, func(n protowire.Number, value, _ []byte) {
		if value != nil {
			f(n, value)
		}
	})
}

// visitAllFields calls f for each field of a message, with the bytes of the whole field. The value is nil if the field is not
// length-delimited.
func visitAllFields(message []byte, f func(n protowire.Number, value, whole []byte)) error {
	for len(message) > 0 {
		number, kind, n := protowire.ConsumeTag(message)
		if n < 0 {
			return protowire.ParseError(n)
		}
		size := protowire.ConsumeFieldValue(number, kind, message[n:])
		if size < 0 {
			return protowire.ParseError(size)
		}
		var value []byte
		if kind == protowire.BytesType {
			value, _ = protowire.ConsumeBytes(message[n : n+size])
		}
		f(number, value, message[:n+size])
		message = message[n+size:]
	}
	return nil
}
