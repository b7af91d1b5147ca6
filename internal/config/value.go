package config

import (
	"fmt"
	"reflect"
	"strconv"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	logsapi "k8s.io/component-base/logs/api/v1"
	kubelet "k8s.io/kubelet/config/v1beta1"
)

// A flagValue is a flag that is bound to a field of settings. The field's type selects the parser. The
// first occurrence of a list or map flag replaces the values of files. Further occurrences add to
// its values.
type flagValue struct {
	field reflect.Value
	used  bool
}

// fieldAt returns a field by its JSON path, such as authentication.x509.clientCAFile.
func fieldAt(v reflect.Value, path string) reflect.Value {
	key, rest, more := strings.Cut(path, ".")
	for i := range v.NumField() {
		name, _, _ := strings.Cut(v.Type().Field(i).Tag.Get("json"), ",")
		if name == "" && v.Type().Field(i).Anonymous {
			if f := fieldAt(v.Field(i), path); f.IsValid() {
				return f
			}
		}
		if name != key {
			continue
		}
		if more && v.Field(i).Kind() == reflect.Struct {
			return fieldAt(v.Field(i), rest)
		}
		if !more {
			return v.Field(i)
		}
	}
	return reflect.Value{}
}

// String returns the value as --help shows it.
func (v *flagValue) String() string {
	if v == nil || !v.field.IsValid() {
		return ""
	}
	f := v.field
	if f.Kind() == reflect.Pointer {
		if f.IsNil() {
			return ""
		}
		f = f.Elem()
	}
	if f.Kind() == reflect.Map || f.Kind() == reflect.Slice {
		if f.Len() == 0 {
			return ""
		}
	}
	if d := durationIn(f); d != nil {
		return d.String()
	}
	if modules, ok := f.Interface().(logsapi.VModuleConfiguration); ok {
		var out []string
		for _, m := range modules {
			out = append(out, fmt.Sprintf("%s=%d", m.FilePattern, m.Verbosity))
		}
		return strings.Join(out, ",")
	}
	return fmt.Sprint(f.Interface())
}

// Type returns the type that --help shows.
func (v *flagValue) Type() string {
	t := v.field.Type()
	if t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	switch {
	case durationIn(reflect.New(t).Elem()) != nil:
		return "duration"
	case t.Kind() == reflect.Slice:
		return "list"
	case t.Kind() == reflect.Map:
		return "key=value,..."
	case t.Kind() == reflect.Bool:
		return "bool"
	case t.Kind() == reflect.String:
		return "string"
	}
	return "int"
}

// Set parses one occurrence of the flag.
func (v *flagValue) Set(s string) error {
	f := v.field
	if f.Kind() == reflect.Pointer {
		p := reflect.New(f.Type().Elem()) // a new pointer, because the old one may be shared with the defaults
		if err := setScalar(p.Elem(), s); err != nil {
			return err
		}
		f.Set(p)
		return nil
	}
	if f.Kind() != reflect.Map && f.Kind() != reflect.Slice {
		return setScalar(f, s)
	}
	add := reflect.New(f.Type())
	if err := parseMany(add.Interface(), s); err != nil {
		return err
	}
	if !v.used || f.IsNil() {
		f.Set(add.Elem())
	} else if f.Kind() == reflect.Slice {
		f.Set(reflect.AppendSlice(f, add.Elem()))
	} else {
		for k, e := range add.Elem().Seq2() {
			f.SetMapIndex(k, e)
		}
	}
	v.used = true
	return nil
}

func setScalar(f reflect.Value, s string) error {
	if d := durationIn(f); d != nil {
		parsed, err := time.ParseDuration(s)
		if err != nil {
			return fmt.Errorf("%q is not a duration such as 10s or 5m", s)
		}
		*d = parsed
		return nil
	}
	switch f.Kind() {
	case reflect.String:
		f.SetString(s)
	case reflect.Bool:
		b, err := strconv.ParseBool(s)
		if err != nil {
			return fmt.Errorf("%q is neither true nor false", s)
		}
		f.SetBool(b)
	case reflect.Int, reflect.Int32, reflect.Int64:
		n, err := strconv.ParseInt(s, 0, f.Type().Bits())
		if err != nil {
			return fmt.Errorf("%q is not an integer of %d bits", s, f.Type().Bits())
		}
		f.SetInt(n)
	case reflect.Uint32:
		n, err := strconv.ParseUint(s, 0, 32)
		if err != nil {
			return fmt.Errorf("%q is not a number of 0 or more", s)
		}
		f.SetUint(n)
	default:
		return fmt.Errorf("cannot be set by a flag (%s)", f.Type())
	}
	return nil
}

// durationIn returns a pointer to the duration that a field of a duration type wraps, or nil.
func durationIn(f reflect.Value) *time.Duration {
	for f.Kind() == reflect.Struct {
		f = f.FieldByName("Duration")
		if !f.IsValid() {
			return nil
		}
	}
	if !f.CanAddr() {
		return nil
	}
	d, _ := f.Addr().Interface().(*time.Duration)
	return d
}

// parseMany parses one occurrence of a flag with several values.
func parseMany(into any, s string) error {
	switch into := into.(type) {
	case *[]string:
		*into = splitTrimmed(s, ",")
	case *map[string]string: // thresholds are written as memory.available<100Mi
		*into = map[string]string{}
		return eachPair(s, "=<", func(k, v string) error { (*into)[k] = v; return nil })
	case *map[string][]string:
		*into = map[string][]string{}
		return eachPair(s, ":", func(k, v string) error { (*into)[k] = append((*into)[k], v); return nil })
	case *map[string]bool:
		*into = map[string]bool{}
		return eachPair(s, "=", func(k, v string) (err error) {
			if (*into)[k], err = strconv.ParseBool(v); err != nil {
				return fmt.Errorf("%s: %q is neither true nor false", k, v)
			}
			return nil
		})
	case *logsapi.VModuleConfiguration:
		return eachPair(s, "=", func(k, v string) error {
			n, err := strconv.ParseUint(v, 10, 31)
			if err != nil {
				return fmt.Errorf("%s: %q is not a verbosity", k, v)
			}
			*into = append(*into, logsapi.VModuleItem{FilePattern: k, Verbosity: logsapi.VerbosityLevel(n)})
			return nil
		})
	case *[]v1.Taint:
		for _, t := range splitTrimmed(s, ",") {
			taint, err := parseTaint(t)
			if err != nil {
				return err
			}
			*into = append(*into, taint)
		}
	case *[]kubelet.MemoryReservation:
		for _, r := range splitTrimmed(s, ";") {
			reservation, err := parseReservation(r)
			if err != nil {
				return err
			}
			*into = append(*into, reservation)
		}
	default:
		return fmt.Errorf("cannot be set by a flag (%T)", into)
	}
	return nil
}

func splitTrimmed(s, sep string) []string {
	out := []string{}
	for part := range strings.SplitSeq(s, sep) {
		if part = strings.TrimSpace(part); part != "" {
			out = append(out, part)
		}
	}
	return out
}

// eachPair calls f for each key and value of a comma-separated list.
func eachPair(s, seps string, f func(k, v string) error) error {
	for _, pair := range splitTrimmed(s, ",") {
		i := strings.IndexAny(pair, seps)
		if i < 1 {
			return fmt.Errorf("%q is not of the form key%cvalue", pair, seps[0])
		}
		if err := f(strings.TrimSpace(pair[:i]), strings.TrimSpace(pair[i+1:])); err != nil {
			return err
		}
	}
	return nil
}

// parseTaint parses key=value:Effect or key:Effect.
func parseTaint(s string) (v1.Taint, error) {
	head, effect, ok := strings.Cut(s, ":")
	key, val, _ := strings.Cut(head, "=")
	if !ok || key == "" {
		return v1.Taint{}, fmt.Errorf("%q is not of the form key=value:Effect", s)
	}
	return v1.Taint{Key: key, Value: val, Effect: v1.TaintEffect(effect)}, nil
}

// parseReservation parses <NUMA node>:<type>=<quantity>[,<type>=<quantity>...].
func parseReservation(s string) (kubelet.MemoryReservation, error) {
	node, limits, ok := strings.Cut(s, ":")
	n, err := strconv.ParseInt(strings.TrimSpace(node), 10, 32)
	if !ok || err != nil {
		return kubelet.MemoryReservation{}, fmt.Errorf("%q is not of the form node:type=quantity", s)
	}
	r := kubelet.MemoryReservation{NumaNode: int32(n), Limits: v1.ResourceList{}}
	err = eachPair(limits, "=", func(k, v string) error {
		q, err := resource.ParseQuantity(v)
		if err != nil {
			return fmt.Errorf("%s: %q is not a quantity", k, v)
		}
		r.Limits[v1.ResourceName(k)] = q
		return nil
	})
	return r, err
}
