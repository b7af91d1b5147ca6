package source

import (
	"context"
	"time"
)

// Fetch returns the content of a URL once. The limits of size, time and redirects are the same as for the source "http". Errors do not
// contain the password of the URL.
func Fetch(ctx context.Context, url string) ([]byte, error) {
	s, err := NewURL(URLConfig{URL: url, Interval: time.Minute})
	if err != nil {
		return nil, err
	}
	defer s.client.CloseIdleConnections()
	data, _, err := s.get(ctx)
	return data, err
}
