package untrusted

import (
	"errors"
	"fmt"
	"io"
	"os"
)

// ErrTooLarge is the error for a file with more bytes than the limit.
var ErrTooLarge = errors.New("too large")

// ReadFile reads the whole file that Open opens. It returns ErrTooLarge if the file has more than
// limit bytes, even if the file system reports a smaller size.
func ReadFile(root, name string, limit int64) ([]byte, error) {
	f, err := Open(root, name)
	if err != nil {
		return nil, err
	}
	return readAll(f, root, name, limit)
}

// ReadInRoot reads the whole file that OpenInRoot opens, with the same limit as ReadFile.
func ReadInRoot(root, name string, limit int64) ([]byte, error) {
	f, err := OpenInRoot(root, name)
	if err != nil {
		return nil, err
	}
	return readAll(f, root, name, limit)
}

func readAll(f *os.File, root, name string, limit int64) ([]byte, error) {
	defer f.Close()
	if st, err := f.Stat(); err == nil && st.Size() > limit {
		return nil, tooLarge(root, name, limit)
	}
	b, err := io.ReadAll(io.LimitReader(f, limit+1))
	if err != nil {
		return nil, fmt.Errorf("read %s below %s: %w", name, root, err)
	}
	if int64(len(b)) > limit {
		return nil, tooLarge(root, name, limit)
	}
	return b, nil
}

func tooLarge(root, name string, limit int64) error {
	return fmt.Errorf("read %s below %s: %w: more than %d bytes", name, root, ErrTooLarge, limit)
}
