package cri

import "testing"

var (
	_ Runtime = (*Client)(nil)
	_ Images  = (*Client)(nil)
	_ Events  = (*Client)(nil)
)

func TestDialEndpoint(t *testing.T) {
	for endpoint, ok := range map[string]bool{"/run/x.sock": true, "unix:///run/x.sock": true, "": false, "run/x.sock": false, "tcp://1.2.3.4:5": false} {
		c, err := Dial(endpoint)
		if (err == nil) != ok {
			t.Errorf("%q: %v", endpoint, err)
		}
		if err == nil {
			c.Close()
		}
	}
}
