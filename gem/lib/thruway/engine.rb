# frozen_string_literal: true

require_relative "../thruway"

# The extension defines the engine on Linux only. The error is not a LoadError, because Rack rescues
# a LoadError and would report that the handler is not installed.
unless Thruway.const_defined?(:Engine, false)
  raise NotImplementedError, "thruway serves on Linux only, and this is #{RUBY_PLATFORM}"
end
