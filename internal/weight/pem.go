package weight

import (
	"reflect"
	"strings"
)

// block is the memory that a decoded PEM block needs in addition to its bytes.
const block = 256

// PEM returns ErrTooHeavy if PEM texts take more than limit bytes of memory when all their blocks
// are decoded and kept. Each line with a colon counts as a header, which becomes a map entry, even
// in comments between blocks.
func PEM(limit int64, texts ...string) error {
	s, header := &scale{limit}, pair(reflect.TypeFor[map[string]string]())
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
