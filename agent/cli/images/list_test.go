package images

import (
	"testing"

	"github.com/islet-edge/islet/internal/api"
)

func TestUsersOfPinned(t *testing.T) {
	if text := usersText(api.Image{Pinned: true}, maxImageUsers); text != "<pinned>" {
		t.Error(text)
	}
}
