package hostcommand

import (
	"fmt"
	"strings"
)

// Flags are the flags of a command. The zero value has none.
type Flags struct {
	values   map[string]func(string) error
	switches map[string]*bool
}

// Value adds a flag that has a value. The arguments are --name=VALUE, or --name and VALUE.
func (f *Flags) Value(name string, set func(string) error) {
	if f.values == nil {
		f.values = map[string]func(string) error{}
	}
	f.values[name] = set
}

// Text adds a flag whose value is stored.
func (f *Flags) Text(name string, to *string) {
	f.Value(name, func(s string) error { *to = s; return nil })
}

// Switch adds a flag without a value. The name is the whole argument.
func (f *Flags) Switch(name string, to *bool) {
	if f.switches == nil {
		f.switches = map[string]*bool{}
	}
	f.switches[name] = to
}

// Take sets the flags that are among the arguments, and returns the other arguments in their order. Each error is a wrong usage.
func (f *Flags) Take(args []string) (rest []string, err error) {
	for i := 0; i < len(args); i++ {
		if on := f.switches[args[i]]; on != nil {
			*on = true
			continue
		}
		name, value, joined := strings.Cut(args[i], "=")
		set := f.values[name]
		if set == nil {
			rest = append(rest, args[i])
			continue
		}
		if !joined {
			if i++; i == len(args) {
				return nil, Usage(fmt.Errorf("%s needs a value", name))
			}
			value = args[i]
		}
		if err := set(value); err != nil {
			return nil, Usage(err)
		}
	}
	return rest, nil
}
