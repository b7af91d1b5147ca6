package api

// Board holds the readings of the machine's sensors, as far as its kernel shows them.
type Board struct {
	Temperatures []Temperature `json:"temperatures,omitempty"`
	// Power lists the conditions that hold now: under-voltage, frequency capped, throttled,
	// soft temperature limit.
	Power          []string `json:"power,omitempty"`
	PowerSinceBoot []string `json:"powerSinceBoot,omitempty"`
	MHz            float64  `json:"mhz,omitempty"` // of the first CPU, now
	MaxMHz         float64  `json:"maxMHz,omitempty"`
	Links          []string `json:"links,omitempty"` // the network interfaces that connect the machine to others
}

// A Temperature is the reading of one sensor.
type Temperature struct {
	Name    string  `json:"name"`
	Celsius float64 `json:"celsius"`
}
