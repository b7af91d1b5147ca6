package weight

import (
	"encoding/json"
	"reflect"
	"strings"
	"sync"
)

// JSON returns ErrTooHeavy if the JSON value in data takes more than limit bytes of memory when it
// is decoded into the type of into, a pointer, and ErrTooDeep if it is nested too deeply. A nil
// into means a tree of maps and slices of any. It returns nil for invalid JSON, because the decoder
// has the better error message and fails before it allocates anything.
func JSON(data []byte, into any, limit int64) error {
	if !json.Valid(data) {
		return nil
	}
	var t reflect.Type
	if into != nil {
		t = reflect.TypeOf(into).Elem()
	}
	w := &text{scale: scale{limit}, data: data}
	return w.value(t, 0)
}

// text is a walk over valid JSON.
type text struct {
	scale
	data []byte
	at   int
}

var (
	unmarshaler = reflect.TypeFor[json.Unmarshaler]()
	anything    = reflect.TypeFor[any]()
)

// skipped is the type of a value that the decoder discards.
var skipped = reflect.TypeFor[struct{}]()

// next skips white space and returns the first byte of the next token, or 0 at the end.
func (w *text) next() byte {
	for w.at < len(w.data) && strings.IndexByte(" \t\r\n", w.data[w.at]) >= 0 {
		w.at++
	}
	if w.at == len(w.data) {
		return 0
	}
	return w.data[w.at]
}

// quoted consumes a string and returns it with its quotes and escapes.
func (w *text) quoted() []byte {
	begin := w.at
	for w.at++; w.at < len(w.data) && w.data[w.at] != '"'; w.at++ {
		if w.data[w.at] == '\\' {
			w.at++
		}
	}
	w.at++
	return w.data[begin:min(w.at, len(w.data))]
}

// value consumes the next value and adds its weight. The caller has already added the size of t
// itself, unless t is an interface.
func (w *text) value(t reflect.Type, depth int) error {
	if depth > maxDepth {
		return ErrTooDeep
	}
	if t == nil {
		t = anything
	}
	c, begin := w.next(), w.at
	if t != skipped && t != anything && reflect.PointerTo(t).Implements(unmarshaler) {
		if err := w.value(skipped, depth); err != nil {
			return err
		}
		return w.add(2*(w.at-begin) + growth*int(t.Size()))
	}
	if t.Kind() == reflect.Pointer && c != 'n' {
		if err := w.add(int(t.Elem().Size())); err != nil {
			return err
		}
		return w.value(t.Elem(), depth)
	}
	if t.Kind() == reflect.Interface {
		t = anything
		if err := w.add(2 * word); err != nil {
			return err
		}
	}
	switch c {
	case '{':
		return w.object(t, depth)
	case '[':
		return w.array(t, depth)
	case '"':
		n := len(w.quoted())
		if t == skipped {
			return nil
		}
		return w.add(n)
	}
	for w.at < len(w.data) && strings.IndexByte(",]} \t\r\n", w.data[w.at]) < 0 {
		w.at++
	}
	return nil
}

func (w *text) array(t reflect.Type, depth int) error {
	e, price := skipped, 0
	switch {
	case t.Kind() == reflect.Slice:
		e, price = t.Elem(), item(t.Elem())
	case t.Kind() == reflect.Array:
		e = t.Elem()
	case t == anything:
		e, price = anything, item(anything)
	}
	w.at++
	for w.next() != ']' {
		if err := w.add(price); err != nil {
			return err
		}
		if err := w.value(e, depth+1); err != nil {
			return err
		}
		if w.next() == ',' {
			w.at++
		}
	}
	w.at++
	return nil
}

func (w *text) object(t reflect.Type, depth int) error {
	var of *members
	value, price := skipped, 0
	switch {
	case t == skipped:
	case t.Kind() == reflect.Struct:
		of = membersOf(t)
	case t.Kind() == reflect.Map:
		value, price = t.Elem(), pair(t)
	case t == anything:
		value, price = anything, pair(reflect.TypeFor[map[string]any]())
	}
	w.at++
	for w.next() != '}' {
		name := w.quoted()
		if of != nil {
			value = of.find(name)
		}
		if price > 0 {
			if err := w.add(price + len(name)); err != nil {
				return err
			}
		}
		if w.next() == ':' {
			w.at++
		}
		if err := w.value(value, depth+1); err != nil {
			return err
		}
		if w.next() == ',' {
			w.at++
		}
	}
	w.at++
	return nil
}

// members are the fields of a struct as members of a JSON object.
type members struct {
	types map[string]reflect.Type // by name
	names []string
}

var structs sync.Map // reflect.Type -> *members

// find returns the type of a member by its quoted name. It ignores case, like the most lenient decoder. It returns
// skipped for a name without a field.
func (m *members) find(quoted []byte) reflect.Type {
	if t, ok := m.types[string(quoted[1:len(quoted)-1])]; ok { // the usual case, without a copy
		return t
	}
	name := string(quoted[1 : len(quoted)-1])
	if strings.IndexByte(name, '\\') >= 0 && json.Unmarshal(quoted, &name) != nil {
		return skipped
	}
	if t, ok := m.types[name]; ok {
		return t
	}
	for _, n := range m.names {
		if strings.EqualFold(n, name) {
			return m.types[n]
		}
	}
	return skipped
}

func membersOf(t reflect.Type) *members {
	if m, ok := structs.Load(t); ok {
		return m.(*members)
	}
	m := &members{types: map[string]reflect.Type{}}
	m.collect(t, 0)
	for name := range m.types {
		m.names = append(m.names, name)
	}
	structs.Store(t, m)
	return m
}

// collect adds the fields of a struct and of the structs that it embeds.
func (m *members) collect(t reflect.Type, depth int) {
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
				m.collect(inner, depth+1)
			}
		case name == "":
			m.types[f.Name] = f.Type
		default:
			m.types[name] = f.Type
		}
	}
}
