package codec

import (
	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/encoding/proto"
	"google.golang.org/grpc/mem"

	"github.com/islet-edge/islet/internal/weight"
)

// New returns a codec that refuses a message that would take more than so many bytes of memory
// once it is decoded, with weight.ErrTooHeavy or weight.ErrTooDeep.
func New(most int64) encoding.CodecV2 {
	return weighing{encoding.GetCodecV2(proto.Name), most}
}

type weighing struct {
	encoding.CodecV2
	most int64
}

// Unmarshal decodes what is not too heavy.
func (c weighing) Unmarshal(data mem.BufferSlice, v any) error {
	whole := data.MaterializeToBuffer(mem.DefaultBufferPool()) // copied once, for both
	defer whole.Free()
	if err := weight.Protobuf(whole.ReadOnlyData(), v, c.most); err != nil {
		return err
	}
	return c.CodecV2.Unmarshal(mem.BufferSlice{whole}, v)
}
