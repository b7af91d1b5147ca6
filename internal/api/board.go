package api

// Board are the sensors of the machine, as far as its kernel shows them.
type Board struct {
	Temperatures   []Temperature `json:"temperatures,omitempty"`
	Power          []string      `json:"power,omitempty"` // what holds now: under-voltage, frequency capped, throttled, soft temperature limit
	PowerSinceBoot []string      `json:"powerSinceBoot,omitempty"`
	MHz            float64       `json:"mhz,omitempty"` // of the first CPU now
	MaxMHz         float64       `json:"maxMHz,omitempty"`
	Links          []string      `json:"links,omitempty"` // the network interfaces that lead out of the machine
}

// A Temperature is what one sensor shows.
type Temperature struct {
	Name    string  `json:"name"`
	Celsius float64 `json:"celsius"`
}
