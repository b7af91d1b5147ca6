package weight

import (
	"reflect"
	"strings"
)

// block is the price of a PEM block beside its bytes, which a caller keeps and encodes again.
const block = 256

// PEM returns ErrTooHeavy unless PEM texts take at most as many bytes of memory when their
// blocks are decoded one after the other and kept. Each line with a colon counts as a header,
// which is an entry of a map; comments between blocks are such lines, too.
func PEM(most int64, texts ...string) error {
	s, header := &scale{most}, pair(reflect.TypeFor[map[string]string]())
	for _, text := range texts {
		for line := range strings.Lines(text) {
			price := len(line)
			if strings.HasPrefix(line, "-----BEGIN ") {
				price += block
			} else if strings.IndexByte(line, ':') >= 0 {
				price += header
			}
			if err := s.add(price); err != nil {
				return err
			}
		}
	}
	return nil
}
