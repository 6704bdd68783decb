# frozen_string_literal: true

require_relative "../thruway"

# The extension has the engine, on Linux. An error of this class is not taken for a handler that is
# not installed (Rack rescues LoadError).
unless Thruway.const_defined?(:Engine, false)
  raise NotImplementedError, "thruway serves on Linux only, and this is #{RUBY_PLATFORM}"
end
