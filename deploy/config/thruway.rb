# frozen_string_literal: true

bind ENV.fetch("THRUWAY_BIND", "tcp://0.0.0.0:9292")
workers Integer(ENV.fetch("WEB_CONCURRENCY", "2"))
threads 5

# For the operators alone: there is no password.
metrics ENV.fetch("THRUWAY_METRICS", "tcp://0.0.0.0:9394")

# 503 when the server stops. Until `drain_delay` is over it accepts: by then, nothing is sent here.
health_check "/up"
drain_delay Integer(ENV.fetch("THRUWAY_DRAIN_DELAY", "10"))
force_shutdown_after 25

# Longer than any balancer keeps its own connections.
persistent_timeout 95

# Whose X-Forwarded-For is believed, and whose turns count.
set_remote_address :x_forwarded_for
fair_by :address

# How busy it is: for HAProxy's agent check, and for Envoy.
agent_check ENV["THRUWAY_AGENT_CHECK"] if ENV.key?("THRUWAY_AGENT_CHECK")
load_report ENV.key?("THRUWAY_LOAD_REPORT")
