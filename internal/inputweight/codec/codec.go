package codec

import (
	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/encoding/proto"
	"google.golang.org/grpc/mem"

	"github.com/islet-edge/islet/internal/inputweight"
)

// New returns a codec that rejects a message whose decoded form takes more than limit bytes of
// memory. Its errors are inputweight.ErrTooHeavy and inputweight.ErrTooDeep.
func New(limit int64) encoding.CodecV2 {
	return limitedCodec{encoding.GetCodecV2(proto.Name), limit}
}

type limitedCodec struct {
	encoding.CodecV2
	limit int64
}

// Unmarshal checks the weight of a message and decodes it.
func (c limitedCodec) Unmarshal(data mem.BufferSlice, v any) error {
	inUse := data.MaterializeToBuffer(mem.DefaultBufferPool()) // one copy for the check and the decoder
	defer inUse.Free()
	if err := inputweight.Protobuf(inUse.ReadOnlyData(), v, c.limit); err != nil {
		return err
	}
	return c.CodecV2.Unmarshal(mem.BufferSlice{inUse}, v)
}
