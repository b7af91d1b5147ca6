package vm

import "os"

// A cachedFile is an image file with the volatile write cache of a real disk or card: a power cut loses some of the sectors that were
// written since the last flush. Without it, no write of the guest would be lost when the emulator is killed.
//
//	guest --write--> file; the sector's old content is stored in unflushed
//	guest --flush--> unflushed is cleared
//	power cut -----> some of the sectors in unflushed get their old content back
type cachedFile struct {
	file      *os.File
	unflushed map[int64][]byte // the old content of the sectors that were written since the last flush, by their offset in bytes
}

const sector = 512

// write writes whole sectors at an offset in bytes.
func (s *cachedFile) write(data []byte, at int64) error {
	old := make([]byte, len(data))
	if _, err := s.file.ReadAt(old, at); err != nil {
		return err
	}
	for i := 0; i < len(old); i += sector {
		if _, ok := s.unflushed[at+int64(i)]; !ok {
			s.unflushed[at+int64(i)] = old[i : i+sector]
		}
	}
	_, err := s.file.WriteAt(data, at)
	return err
}

func (s *cachedFile) flush() { clear(s.unflushed) }

// cutPower restores the old content of each sector in unflushed for which isLost returns true. It returns their number.
func (s *cachedFile) cutPower(isLost func(at int64) bool) (sectors int, err error) {
	for at, old := range s.unflushed {
		if !isLost(at) {
			continue
		}
		if _, err := s.file.WriteAt(old, at); err != nil {
			return sectors, err
		}
		sectors++
	}
	clear(s.unflushed)
	return sectors, nil
}
