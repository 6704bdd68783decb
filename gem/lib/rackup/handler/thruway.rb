# frozen_string_literal: true

require "rackup/handler"
require "thruway/handler"

module Rackup
  module Handler
    # For `rackup -s thruway` and `rails server -u thruway`, with Rack 3.
    Thruway = ::Thruway::Handler

    register :thruway, Thruway
  end
end
