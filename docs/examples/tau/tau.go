// Package tau is a client of `tau-live proxy` for decisions. Copy it into your agent.
package tau

import (
	"bytes"
	"encoding/json"
	"net/http"
	"time"
)

// Client talks to a proxy; URL is such as http://127.0.0.1:8788.
type Client struct {
	URL, Token string
	Timeout    time.Duration // 0 is a second
}

// Choice is what was decided; Source is "default" if the proxy did not decide.
type Choice struct {
	Option        string  `json:"option"`
	Decision      string  `json:"decision"`
	Run           string  `json:"run"`
	Source        string  `json:"source"`
	Propensity    float64 `json:"propensity"`
	PolicyVersion int     `json:"policy_version"`
}

// Request is what is to be decided; all but Point and Options may be left out.
type Request struct {
	Point   string                    `json:"point"`
	Options map[string]map[string]any `json:"options"`
	Default string                    `json:"default,omitempty"`
	Allowed []string                  `json:"allowed,omitempty"`
	Context map[string]any            `json:"context,omitempty"`
	Run     string                    `json:"run,omitempty"`
}

// Decide chooses one of the options; the default, whatever fails.
func (c Client) Decide(r Request) Choice {
	choice := Choice{Option: r.Default, Source: "default"}
	var found Choice
	if c.post("decide", r, &found) && found.Option != "" {
		return found
	}
	return choice
}

// Reward rewards a decision, a run or the answer of a model; false if it was not taken.
func (c Client) Reward(id string, value float64) bool {
	var taken struct{ Accepted bool }
	return id != "" && c.post("reward", map[string]any{"id": id, "value": value}, &taken) && taken.Accepted
}

// Run does something as one run, in which several things may be decided.
func (c Client) Run(name string, work func(run string) error) error {
	var begun struct{ Run string }
	c.post("runs", map[string]any{"name": name}, &begun)
	err := work(begun.Run)
	if begun.Run != "" {
		end := map[string]any{}
		if err != nil {
			end["error"] = err.Error()
		}
		c.post("runs/"+begun.Run+"/end", end, &struct{}{})
	}
	return err
}

func (c Client) post(path string, body, answer any) bool {
	content, err := json.Marshal(body)
	if err != nil {
		return false
	}
	request, err := http.NewRequest("POST", c.URL+"/v1/"+path, bytes.NewReader(content))
	if err != nil {
		return false
	}
	request.Header.Set("content-type", "application/json")
	if c.Token != "" {
		request.Header.Set("x-tau-token", c.Token)
	}
	timeout := c.Timeout
	if timeout == 0 {
		timeout = time.Second
	}
	response, err := (&http.Client{Timeout: timeout}).Do(request)
	if err != nil {
		return false
	}
	defer response.Body.Close()
	return response.StatusCode < 300 && json.NewDecoder(response.Body).Decode(answer) == nil
}
