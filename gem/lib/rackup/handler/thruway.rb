# frozen_string_literal: true

require "rackup/handler"
require "thruway/handler"

module Rackup
  module Handler
    # For `rackup -s thruway` and `rails server -u thruway`, with Rack 3. Rails prints the name of
    # the module.
    module Thruway
      extend ::Thruway::Handler
    end

    register :thruway, Thruway
  end
end
