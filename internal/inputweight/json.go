package inputweight

import (
	"encoding/json"
	"reflect"
	"strings"
	"sync"
)

// JSON returns ErrTooHeavy if the JSON value in data takes more than limit bytes of memory once it is decoded into the target. It returns
// ErrTooDeep if the value is nested too deeply. The target is a pointer, or nil for a tree of maps and slices of any. JSON returns nil for
// invalid JSON, because the decoder returns a better error message before it allocates memory.
func JSON(data []byte, into any, limit int64) error {
	if !json.Valid(data) {
		return nil
	}
	var t reflect.Type
	if into != nil {
		t = reflect.TypeOf(into).Elem()
	}
	w := &jsonReader{scale: scale{limit}, data: data}
	return w.addValue(t, 0)
}

// A jsonReader computes the weight of valid JSON.
type jsonReader struct {
	scale
	data []byte
	at   int
}

var (
	unmarshalerType = reflect.TypeFor[json.Unmarshaler]()
	anyType         = reflect.TypeFor[any]()
)

// discardedType is the type of a value that the decoder discards.
var discardedType = reflect.TypeFor[struct{}]()

// peek skips white space and returns the first byte of the next token, or 0 at the end. It does not
// consume the token.
func (w *jsonReader) peek() byte {
	for w.at < len(w.data) && strings.IndexByte(" \t\r\n", w.data[w.at]) >= 0 {
		w.at++
	}
	if w.at == len(w.data) {
		return 0
	}
	return w.data[w.at]
}

// readString consumes a string and returns it with its quotes and escapes.
func (w *jsonReader) readString() []byte {
	begin := w.at
	for w.at++; w.at < len(w.data) && w.data[w.at] != '"'; w.at++ {
		if w.data[w.at] == '\\' {
			w.at++
		}
	}
	w.at++
	return w.data[begin:min(w.at, len(w.data))]
}

// addValue consumes the next value and adds its weight. The caller has already added the size of t
// itself, unless t is an interface.
func (w *jsonReader) addValue(t reflect.Type, depth int) error {
	if depth > maxDepth {
		return ErrTooDeep
	}
	if t == nil {
		t = anyType
	}
	c, begin := w.peek(), w.at
	if t != discardedType && t != anyType && reflect.PointerTo(t).Implements(unmarshalerType) {
		if err := w.addValue(discardedType, depth); err != nil {
			return err
		}
		return w.add(2*(w.at-begin) + maxGrowth*int(t.Size()))
	}
	if t.Kind() == reflect.Pointer && c != 'n' {
		if err := w.add(int(t.Elem().Size())); err != nil {
			return err
		}
		return w.addValue(t.Elem(), depth)
	}
	if t.Kind() == reflect.Interface {
		t = anyType
		if err := w.add(2 * wordSize); err != nil {
			return err
		}
	}
	switch c {
	case '{':
		return w.addObject(t, depth)
	case '[':
		return w.addArray(t, depth)
	case '"':
		n := len(w.readString())
		if t == discardedType {
			return nil
		}
		return w.add(n)
	}
	for w.at < len(w.data) && strings.IndexByte(",]} \t\r\n", w.data[w.at]) < 0 {
		w.at++
	}
	return nil
}

func (w *jsonReader) addArray(t reflect.Type, depth int) error {
	e, price := discardedType, 0
	switch {
	case t.Kind() == reflect.Slice:
		e, price = t.Elem(), elementWeight(t.Elem())
	case t.Kind() == reflect.Array:
		e = t.Elem()
	case t == anyType:
		e, price = anyType, elementWeight(anyType)
	}
	w.at++
	for w.peek() != ']' {
		if err := w.add(price); err != nil {
			return err
		}
		if err := w.addValue(e, depth+1); err != nil {
			return err
		}
		if w.peek() == ',' {
			w.at++
		}
	}
	w.at++
	return nil
}

func (w *jsonReader) addObject(t reflect.Type, depth int) error {
	var names *memberTypes
	value, price := discardedType, 0
	switch {
	case t == discardedType:
	case t.Kind() == reflect.Struct:
		names = membersOf(t)
	case t.Kind() == reflect.Map:
		value, price = t.Elem(), entryWeight(t)
	case t == anyType:
		value, price = anyType, entryWeight(reflect.TypeFor[map[string]any]())
	}
	w.at++
	for w.peek() != '}' {
		name := w.readString()
		if names != nil {
			value = names.find(name)
		}
		if price > 0 {
			if err := w.add(price + len(name)); err != nil {
				return err
			}
		}
		if w.peek() == ':' {
			w.at++
		}
		if err := w.addValue(value, depth+1); err != nil {
			return err
		}
		if w.peek() == ',' {
			w.at++
		}
	}
	w.at++
	return nil
}

// memberTypes contains the types of a struct's fields by their names in JSON.
type memberTypes struct {
	types map[string]reflect.Type // by name
	names []string
}

var structMembers sync.Map // reflect.Type -> *memberTypes

// find returns the type of the member with the given quoted name. It ignores case, like the most lenient decoder. It
// returns discardedType if there is no such field.
func (m *memberTypes) find(quoted []byte) reflect.Type {
	if t, ok := m.types[string(quoted[1:len(quoted)-1])]; ok { // the usual case, without a copy
		return t
	}
	name := string(quoted[1 : len(quoted)-1])
	if strings.IndexByte(name, '\\') >= 0 && json.Unmarshal(quoted, &name) != nil {
		return discardedType
	}
	if t, ok := m.types[name]; ok {
		return t
	}
	for _, n := range m.names {
		if strings.EqualFold(n, name) {
			return m.types[n]
		}
	}
	return discardedType
}

func membersOf(t reflect.Type) *memberTypes {
	if m, ok := structMembers.Load(t); ok {
		return m.(*memberTypes)
	}
	m := &memberTypes{types: map[string]reflect.Type{}}
	m.addFields(t, 0)
	for name := range m.types {
		m.names = append(m.names, name)
	}
	structMembers.Store(t, m)
	return m
}

// addFields adds the fields of a struct and of the structs that it embeds.
func (m *memberTypes) addFields(t reflect.Type, depth int) {
	for i := range t.NumField() {
		f := t.Field(i)
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		inner := f.Type
		if inner.Kind() == reflect.Pointer {
			inner = inner.Elem()
		}
		switch {
		case name == "-":
		case f.Anonymous && name == "" && inner.Kind() == reflect.Struct:
			if depth < maxDepth {
				m.addFields(inner, depth+1)
			}
		case name == "":
			m.types[f.Name] = f.Type
		default:
			m.types[name] = f.Type
		}
	}
}
