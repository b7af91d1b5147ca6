package inputweight

import (
	"errors"
	"reflect"
	"strconv"
	"strings"
	"sync"

	"google.golang.org/protobuf/encoding/protowire"
)

// errWire is the error for bytes that are not a protobuf message.
var errWire = errors.New("is not a protobuf message")

// Protobuf returns ErrTooHeavy if the encoded message takes more than limit bytes of memory once it is decoded into the target. For a
// message that is nested too deeply it returns ErrTooDeep. For bytes that are not a message it returns another error. The target is a
// pointer to a generated struct. Protobuf reads the struct tags of gogo/protobuf (Kubernetes' objects) and of google.golang.org/protobuf.
func Protobuf(data []byte, into any, limit int64) error {
	_, err := OfProtobuf(data, into, limit)
	return err
}

// OfProtobuf is like Protobuf and also returns the weight in bytes.
func OfProtobuf(data []byte, into any, limit int64) (int64, error) {
	t := reflect.TypeOf(into)
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	s := &scale{limit}
	if err := s.add(int(t.Size())); err != nil {
		return 0, err
	}
	if err := s.addMessage(data, fieldsOf(t), 0); err != nil {
		return 0, err
	}
	return limit - s.left, nil
}

// fieldTypes contains the types of a message's fields by number.
type fieldTypes map[protowire.Number]reflect.Type

// The key oneofKey in fieldTypes represents all members of a oneof, because the struct does not contain their types. No field has this
// number. A member of a oneof gets the largest possible weight: oneofBytes for its wrapper and message, plus anyItem for each byte.
const (
	oneofKey   = 0
	oneofBytes = 128
	anyItem    = 32
)

var structFields sync.Map // reflect.Type -> fieldTypes

// fieldsOf returns the fields of a struct according to its tags. A slice type is treated like a message whose field
// 1 is the slice.
func fieldsOf(t reflect.Type) fieldTypes {
	if f, ok := structFields.Load(t); ok {
		return f.(fieldTypes)
	}
	out := fieldTypes{}
	switch t.Kind() {
	case reflect.Slice:
		out[1] = t
	case reflect.Struct:
		for i := range t.NumField() {
			if t.Field(i).Tag.Get("protobuf_oneof") != "" {
				out[oneofKey] = t.Field(i).Type
			}
			part := strings.Split(t.Field(i).Tag.Get("protobuf"), ",")
			if len(part) < 2 {
				continue
			}
			if n, err := strconv.Atoi(part[1]); err == nil {
				out[protowire.Number(n)] = t.Field(i).Type
			}
		}
	}
	structFields.Store(t, out)
	return out
}

func (s *scale) addMessage(data []byte, types fieldTypes, depth int) error {
	if depth > maxDepth {
		return ErrTooDeep
	}
	for len(data) > 0 {
		number, kind, n := protowire.ConsumeTag(data)
		if n < 0 {
			return errWire
		}
		data = data[n:]
		if n = protowire.ConsumeFieldValue(number, kind, data); n < 0 {
			return errWire
		}
		value := data[:n]
		data = data[n:]
		if types[oneofKey] != nil && types[number] == nil {
			if err := s.add(oneofBytes + anyItem*len(value)); err != nil {
				return err
			}
		}
		if kind != protowire.BytesType {
			if t, ok := types[number]; ok && (t.Kind() == reflect.Slice || t.Kind() == reflect.Pointer) {
				if err := s.add(elementWeight(t.Elem())); err != nil {
					return err
				}
			}
			continue
		}
		value, _ = protowire.ConsumeBytes(value)
		if err := s.addField(value, types[number], depth); err != nil {
			return err
		}
	}
	return nil
}

// addField adds the weight of a length-delimited value. The type t is nil for an unknown field,
// whose bytes the decoder keeps.
func (s *scale) addField(value []byte, t reflect.Type, depth int) error {
	if t == nil {
		return s.add(2 * len(value))
	}
	switch t.Kind() {
	case reflect.Map:
		if err := s.add(entryWeight(t)); err != nil {
			return err
		}
		types := fieldTypes{1: t.Key(), 2: t.Elem()}
		if e := t.Elem(); e.Kind() == reflect.Slice && e.Elem().Kind() != reflect.Uint8 {
			types[2] = reflect.PointerTo(e) // a message, such as authentication's ExtraValue
		}
		return s.addMessage(value, types, depth+1)
	case reflect.Slice:
		e := t.Elem()
		switch {
		case e.Kind() == reflect.Uint8:
			return s.add(len(value))
		case isFlat(e): // packed numbers
			return s.add(len(value) * elementWeight(e))
		}
		if err := s.add(elementWeight(e)); err != nil {
			return err
		}
		return s.addField(value, e, depth)
	case reflect.Pointer:
		if err := s.add(int(t.Elem().Size())); err != nil {
			return err
		}
		if t.Elem().Kind() == reflect.Slice {
			return s.addMessage(value, fieldsOf(t.Elem()), depth+1)
		}
		return s.addField(value, t.Elem(), depth)
	case reflect.Struct:
		return s.addMessage(value, fieldsOf(t), depth+1)
	}
	return s.add(len(value))
}
