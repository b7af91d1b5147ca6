package bundle

import (
	"fmt"
	"io"

	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
)

// ReadBlob reads a document and checks its size and digest. A document larger than the limit is an error and is not read.
func ReadBlob(l Layout, desc ocispec.Descriptor, limit int64) ([]byte, error) {
	if err := checkDescriptor(desc.Digest, desc.Size, limit); err != nil {
		return nil, err
	}
	r, err := openBlob(l, desc)
	if err != nil {
		return nil, err
	}
	defer r.Close()
	b := make([]byte, desc.Size)
	if _, err := io.ReadFull(r, b); err != nil {
		return nil, fmt.Errorf("read %s: %w", desc.Digest, err)
	}
	if digest.FromBytes(b) != desc.Digest {
		return nil, differs(desc)
	}
	return b, nil
}
