package images

import (
	"context"
	"fmt"
	"time"

	"github.com/islet-edge/islet/internal/api"
	"github.com/islet-edge/islet/internal/clock"
)

// An imageDater is a runtime that knows when it stored each image. ImagesAdded returns the times by image ID.
type imageDater interface {
	ImagesAdded(ctx context.Context) (map[string]time.Time, error)
}

// addImageDetails sets the age and the users of images. It omits the age of an image that was stored before the clock
// was set.
func (im *Images) addImageDetails(ctx context.Context, images []api.Image) (err error) {
	users := map[string][]string{}
	if im.Garbage != nil {
		if users, err = im.Garbage.ImageUsers(ctx); err != nil {
			return fmt.Errorf("find the users of images: %w", err)
		}
	}
	added := map[string]time.Time{}
	if d, ok := im.Store.(imageDater); ok {
		if added, err = d.ImagesAdded(ctx); err != nil {
			return err
		}
	}
	for i := range images {
		images[i].Users = users[images[i].ID]
		if at := added[images[i].ID]; clock.IsSet(at) {
			images[i].Added = at
		}
	}
	return nil
}
