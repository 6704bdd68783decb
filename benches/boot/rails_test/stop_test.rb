# frozen_string_literal: true

require "test_helper"

# One small test, so that nearly all of its time is the boot's.
class StopTest < ActiveSupport::TestCase
  def test_a_stop_is_made
    assert_equal "Halfway house", Stop.new(name: "Halfway house").name
  end
end
