package inputweight

import (
	"reflect"
	"strings"
)

// pemBlock is the memory in bytes of a decoded PEM block in addition to its text.
const pemBlock = 256

// PEM returns ErrTooHeavy if all decoded blocks of PEM texts together take more than limit bytes of
// memory. A header of a block becomes a map entry. PEM counts every line with a colon as a header,
// including lines of comments between blocks.
func PEM(limit int64, texts ...string) error {
	s, header := &scale{limit}, entryWeight(reflect.TypeFor[map[string]string]())
	for _, text := range texts {
		for line := range strings.Lines(text) {
			price := len(line)
			if strings.HasPrefix(line, "-----BEGIN ") {
				price += pemBlock
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
